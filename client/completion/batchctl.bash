# bash completion for batchctl and batchd: batchctl knows the words
_batchctl() {
	local line word=${COMP_WORDS[COMP_CWORD]}
	COMPREPLY=()
	while IFS= read -r line; do
		case $line in
		:files)
			compopt -o filenames
			mapfile -t COMPREPLY < <(compgen -f -- "${word#=}")
			;;
		:directories)
			compopt -o filenames
			mapfile -t COMPREPLY < <(compgen -d -- "${word#=}")
			;;
		*) COMPREPLY+=("${line%%$'\t'*}") ;;
		esac
	done < <(batchctl complete "${COMP_WORDS[0]##*/}" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _batchctl batchctl batchd
