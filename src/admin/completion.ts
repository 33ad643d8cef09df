/** The shells that there is a completion for. */
export const SHELLS = ['bash', 'zsh'] as const;

export type Shell = (typeof SHELLS)[number];

/** A command of `postern admin`, and its options. */
export interface CompletedCommand {
  /** One word, or two. */
  readonly name: string;
  readonly options: readonly string[];
}

const COMMANDS = ['start', 'dev', 'admin', '--help', '--version'];

/**
 * A script that completes the words of `postern`, and of `npx postern` where the shell completes that.
 * It has the names of commands and options in it, and asks nobody for ids.
 */
export function completionFor(shell: Shell, commands: readonly CompletedCommand[]): string {
  const script = bashScript(commands);
  // zsh reads bash's completions.
  return shell === 'bash' ? script : `autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n${script}`;
}

function bashScript(commands: readonly CompletedCommand[]): string {
  const nouns = [...new Set(commands.map(({ name }) => name.split(' ')[0] ?? name))];
  const verbs = nouns.map((noun) => {
    const words = commands.flatMap(({ name }) => (name.startsWith(`${noun} `) ? [name.slice(noun.length + 1)] : []));
    return `    ${noun}) words='${words.join(' ')}' ;;`;
  });
  const options = commands.map(({ name, options: own }) => `    '${name}') words='${own.map((option) => `--${option}`).join(' ')}' ;;`);
  return `_postern() {
  local word="\${COMP_WORDS[COMP_CWORD]}" words=''
  if [ "$COMP_CWORD" -eq 1 ]; then
    words='${COMMANDS.join(' ')}'
  elif [ "\${COMP_WORDS[1]}" = admin ] && [ "$COMP_CWORD" -eq 2 ]; then
    words='${nouns.join(' ')}'
  elif [ "\${COMP_WORDS[1]}" = admin ] && [ "$COMP_CWORD" -eq 3 ] && [ "\${word#-}" = "$word" ]; then
    case "\${COMP_WORDS[2]}" in
${verbs.join('\n')}
    esac
  elif [ "\${COMP_WORDS[1]}" = admin ]; then
    case "\${COMP_WORDS[2]} \${COMP_WORDS[3]}" in
${options.join('\n')}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _postern postern
`;
}
