# fish completion for batchctl
set -l commands status bench verify preview load sample-data doctor help

complete -c batchctl -f
complete -c batchctl -n "not __fish_seen_subcommand_from $commands" -a status -d "What the daemon does, and who waits for whom"
complete -c batchctl -n "not __fish_seen_subcommand_from $commands" -a bench -d "Drive trainers against a data set and measure"
complete -c batchctl -n "not __fish_seen_subcommand_from $commands" -a verify -d "Decode every file and name the bad ones"
complete -c batchctl -n "not __fish_seen_subcommand_from $commands" -a preview -d "A contact sheet of what a pipeline makes"
complete -c batchctl -n "not __fish_seen_subcommand_from $commands" -a load -d "One image through a pipeline"
complete -c batchctl -n "not __fish_seen_subcommand_from $commands" -a sample-data -d "Make a labelled JPEG folder to try things with"
complete -c batchctl -n "not __fish_seen_subcommand_from $commands" -a doctor -d "What stands in the way here, and what to change"
complete -c batchctl -n "not __fish_seen_subcommand_from $commands" -a help -d "Explain a command"
complete -c batchctl -n "not __fish_seen_subcommand_from $commands" -l version -d "Print the version"
complete -c batchctl -l help -d "Explain the options"
complete -c batchctl -n "__fish_seen_subcommand_from help" -a "status bench verify preview load sample-data doctor"

complete -c batchctl -n "__fish_seen_subcommand_from status bench verify preview load sample-data doctor" -l json -d "Result as JSON"
complete -c batchctl -n "__fish_seen_subcommand_from bench verify preview sample-data" -l quiet -d "No progress"
complete -c batchctl -n "__fish_seen_subcommand_from bench verify preview sample-data" -a "(__fish_complete_directories)"

complete -c batchctl -n "__fish_seen_subcommand_from status bench doctor" -l socket -r -F -d "The daemon's socket"
complete -c batchctl -n "__fish_seen_subcommand_from doctor" -l gpu -d "A machine without a usable GPU has a problem"
complete -c batchctl -n "__fish_seen_subcommand_from status" -l watch -d "Again and again"
complete -c batchctl -n "__fish_seen_subcommand_from status" -l interval -x -d "Time between two looks"
complete -c batchctl -n "__fish_seen_subcommand_from status" -l from -r -F -d "Saved status"

complete -c batchctl -n "__fish_seen_subcommand_from bench preview load" -l transform -x -a "train224 val224" -d "Pipeline"
complete -c batchctl -n "__fish_seen_subcommand_from bench preview load sample-data" -l seed -x -d "Seed"
complete -c batchctl -n "__fish_seen_subcommand_from bench" -l batch-size -x -d "Rows"
complete -c batchctl -n "__fish_seen_subcommand_from bench" -l dtype -x -a "uint8 float16 float32" -d "Element type"
complete -c batchctl -n "__fish_seen_subcommand_from bench" -l layout -x -a "NCHW NHWC" -d "Memory layout"
complete -c batchctl -n "__fish_seen_subcommand_from bench" -l trainers -x -d "Trainer processes"
complete -c batchctl -n "__fish_seen_subcommand_from bench" -l mode -x -a "shard share" -d "Who gets which batch"
complete -c batchctl -n "__fish_seen_subcommand_from bench" -l epochs -x -d "Run so many epochs"
complete -c batchctl -n "__fish_seen_subcommand_from bench" -l seconds -x -d "Stop after this time"
complete -c batchctl -n "__fish_seen_subcommand_from bench" -l workers -x -d "Decoding threads"
complete -c batchctl -n "__fish_seen_subcommand_from bench" -l slots -x -d "Batches ahead per trainer"
complete -c batchctl -n "__fish_seen_subcommand_from bench" -l touch -d "Trainers read every byte"
complete -c batchctl -n "__fish_seen_subcommand_from bench" -l private -d "Start a daemon for this measurement"

complete -c batchctl -n "__fish_seen_subcommand_from verify sample-data" -l jobs -x -d "Threads"
complete -c batchctl -n "__fish_seen_subcommand_from verify preview load" -l exif -d "Turn images upright"

complete -c batchctl -n "__fish_seen_subcommand_from preview" -l out -r -F -d "PNG file to write"
complete -c batchctl -n "__fish_seen_subcommand_from preview" -l n -x -d "Pictures"
complete -c batchctl -n "__fish_seen_subcommand_from preview" -l columns -x -d "Pictures in a row"
complete -c batchctl -n "__fish_seen_subcommand_from preview load" -l epoch -x -d "Epoch of order and augmentation"
complete -c batchctl -n "__fish_seen_subcommand_from preview" -l indices -x -d "These samples"

complete -c batchctl -n "__fish_seen_subcommand_from sample-data" -l classes -x -d "Classes, 1 to 32"
complete -c batchctl -n "__fish_seen_subcommand_from sample-data" -l per-class -x -d "Pictures in each"
complete -c batchctl -n "__fish_seen_subcommand_from sample-data" -l size -x -d "Pixels, WIDTHxHEIGHT"
complete -c batchctl -n "__fish_seen_subcommand_from sample-data" -l force -d "Into a directory that is not empty"
complete -c batchctl -n "__fish_seen_subcommand_from load" -l dtype -x -a "uint8 float16 float32" -d "Element type"
complete -c batchctl -n "__fish_seen_subcommand_from load" -l layout -x -a "NCHW NHWC" -d "Memory layout"
complete -c batchctl -n "__fish_seen_subcommand_from load" -l index -x -d "The sample's index, for random ops"
complete -c batchctl -n "__fish_seen_subcommand_from load" -l out -r -F -d "Array of numpy to write"
complete -c batchctl -n "__fish_seen_subcommand_from load" -l repeat -x -d "So many times"
complete -c batchctl -n "__fish_seen_subcommand_from load" -F
