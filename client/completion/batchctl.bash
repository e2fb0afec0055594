# bash completion for batchctl
_batchctl() {
	local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
	local options values=
	COMPREPLY=()

	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "status top bench tune trace verify index preview load sample-data doctor help --help --version" -- "$word")
		return
	fi
	case $command in
	status) options="--socket --watch --interval --from --json --help" ;;
	top) options="--socket --interval --n --sort --job --plain --json --help" ;;
	bench) options="--transform --batch-size --dtype --layout --device --trainers --mode --epochs --seconds --workers --slots --seed --touch
		--private --socket --json --quiet --help" ;;
	tune) options="--job --socket --transform --batch-size --seconds --rounds --most-workers --no-torch --python --svg --write --json --quiet --help" ;;
	trace) options="--time --out --merge --socket --json --help" ;;
	verify) options="--jobs --exif --json --quiet --help" ;;
	index) options="--check --force --json --quiet --help" ;;
	preview) options="--out --title --transform --op --mix --n --columns --seed --epoch --indices --exif --json --quiet --help" ;;
	load) options="--transform --dtype --layout --exif --seed --epoch --index --out --repeat --daemon --socket --json --help" ;;
	sample-data) options="--classes --per-class --seed --size --jobs --force --json --quiet --help" ;;
	doctor) options="--socket --gpu --json --help" ;;
	help) options="status top bench tune trace verify index preview load sample-data doctor" ;;
	*) return ;;
	esac

	case $previous in
	--dtype) values="uint8 float16 float32" ;;
	--layout) values="NCHW NHWC" ;;
	--sort) values="lost wait rate job" ;;
	--mode) values="shard share" ;;
	--transform) values="train224 val224" ;;
	--socket | --from | --out | --svg | --merge | --write | --python)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	--batch-size | --trainers | --epochs | --seconds | --workers | --slots | --seed | --jobs | --n | --columns | --epoch | --index | --repeat | --indices | --title | \
		--classes | --per-class | --size | --interval | --time | --job | --rounds | --most-workers)
		return
		;;
	esac
	if [[ $values ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
	elif [[ $command == load && $word != -* ]]; then
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
	elif [[ $word == -* || $command == help || $command == status || $command == top || $command == trace || $command == doctor ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
	else
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$word")
	fi
}
complete -F _batchctl batchctl
