# fish completion for batchctl and batchd: batchctl knows the words
function __batchctl_complete
	for line in (batchctl complete $argv (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
		switch $line
			case :files
				__fish_complete_path (commandline -ct)
			case :directories
				__fish_complete_directories (commandline -ct)
			case '*'
				echo $line
		end
	end
end

complete -c batchctl -f -a '(__batchctl_complete batchctl)'
complete -c batchd -f -a '(__batchctl_complete batchd)'
