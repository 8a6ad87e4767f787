# shellcheck shell=bash
_belljar() {
  local IFS=$'\n' line width=0 lines=()
  COMPREPLY=()
  while read -r line; do lines+=("$line"); done < <(
    "${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  for line in "${lines[@]}"; do
    COMPREPLY+=("${line%%$'\t'*}")
    (( ${#COMPREPLY[-1]} > width )) && width=${#COMPREPLY[-1]}
  done
  if (( ${COMP_TYPE:-9} == 63 && ${#lines[@]} > 1 )); then  # a list is wanted: with what each means
    COMPREPLY=()
    for line in "${lines[@]}"; do
      printf -v line "%-${width}s  %s" "${line%%$'\t'*}" "${line#*$'\t'}"
      COMPREPLY+=("${line:0:$((${COLUMNS:-80} - 2))}")
    done
  fi
}
complete -o default -o nosort -F _belljar belljar
