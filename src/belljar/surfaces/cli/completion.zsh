#compdef belljar
_belljar() {
  local -a found
  local line
  for line in ${(f)"$(${words[1]} __complete "${(@)words[2,$CURRENT]}" 2>/dev/null)"}; do
    found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  if (( $#found )); then _describe belljar found; else _files; fi
}
compdef _belljar belljar
