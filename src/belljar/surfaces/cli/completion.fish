function __belljar_complete
  set -l words (commandline -opc) (commandline -ct)
  $words[1] __complete $words[2..-1] 2>/dev/null; or __fish_complete_path (commandline -ct)
end
complete -c belljar -f -a '(__belljar_complete)'
