# bash completion for batchd
_batchd() {
	local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} values=
	COMPREPLY=()

	case $previous in
	-c | --config | -s | --socket | --log)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	--log-level) values="error warning notice info debug" ;;
	--pin-memory) values="auto on off" ;;
	--gpu-memory) values="auto off" ;;
	-w | --workers | -m | --memory) values=auto ;;
	-d | --dataset | --linger | --idle-exit | --metrics) return ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "${values:---config --socket --dataset --workers --memory --gpu-memory --pin-memory
		--linger --idle-exit --on-demand --metrics --foreground --log --log-level --check-config --version --help}" -- "$word")
}
complete -F _batchd batchd
