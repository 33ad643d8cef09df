import { ServiceError } from '../../errors.ts';

/** A setting's name and value, as text. */
export type Setting = readonly [name: string, value: string];

/**
 * The settings made by those switches of `postgres` that a client may use. The others set what a client may not.
 * Undefined: the switch does not accept the value.
 */
const SWITCHES: ReadonlyMap<string, (value: string) => Setting | undefined> = new Map([
  ['c', (value: string) => assignment('-c ', value)],
  ['-', (value: string) => assignment('--', value)],
  ['S', (value: string): Setting => ['work_mem', value]],
  ['f', disabledPlan],
]);

const PLANS: ReadonlyMap<string, string> = new Map([
  ['s', 'enable_seqscan'],
  ['i', 'enable_indexscan'],
  ['o', 'enable_indexonlyscan'],
  ['b', 'enable_bitmapscan'],
  ['t', 'enable_tidscan'],
  ['n', 'enable_nestloop'],
  ['m', 'enable_mergejoin'],
  ['h', 'enable_hashjoin'],
]);

/**
 * The settings in the startup parameter `options`, in order: `-c name=value`, `-cname=value`, `--name=value`, and the
 * switches `-S`, `-f` and `-e`. Words end at white space that no backslash precedes.
 * @throws ServiceError with SQLSTATE 42601 for anything else
 * @see https://github.com/postgres/postgres/blob/master/src/backend/tcop/postgres.c process_postgres_switches
 */
export function parseOptions(options: string): Setting[] {
  const words = splitWords(options);
  const settings: Setting[] = [];
  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    if (word !== '--') settings.push(...parseSwitches(word, words));
    else if (words[0] !== undefined) throw invalidArgument(words[0]);
  }
  return settings;
}

/** One word of switches, as getopt reads them: `-eS64` is `-e -S 64`. @param following the next words; a value that stands apart is taken from them */
function parseSwitches(word: string, following: string[]): Setting[] {
  if (!/^-./s.test(word)) throw invalidArgument(word);
  const settings: Setting[] = [];
  for (let i = 1; i < word.length; i++) {
    if (word.charAt(i) === 'e') {
      settings.push(['datestyle', 'euro']);
      continue;
    }
    const value = i + 1 < word.length ? word.slice(i + 1) : following.shift();
    const setting = value === undefined ? undefined : SWITCHES.get(word.charAt(i))?.(value);
    if (setting === undefined) throw invalidArgument(word);
    return [...settings, setting];
  }
  return settings;
}

/** @see https://github.com/postgres/postgres/blob/master/src/backend/utils/init/postinit.c pg_split_opts */
function splitWords(options: string): string[] {
  const words = options.match(/(?:\\.?|[^ \t\n\v\f\r\\])+/gs) ?? [];
  return words.map((word) => word.replace(/\\(.?)/gs, '$1'));
}

/** `name=value`; a `-` in the name means `_`. */
function assignment(prefix: string, text: string): Setting {
  const equals = text.indexOf('=');
  if (equals === -1) throw syntaxError(`${prefix}${text} requires a value`);
  return [text.slice(0, equals).replaceAll('-', '_'), text.slice(equals + 1)];
}

function disabledPlan(letter: string): Setting | undefined {
  const plan = PLANS.get(letter.charAt(0));
  return plan === undefined ? undefined : [plan, 'false'];
}

function invalidArgument(word: string): ServiceError {
  return syntaxError(`invalid command-line argument for server process: ${word}`, 'Try "postgres --help" for more information.');
}

function syntaxError(message: string, hint?: string): ServiceError {
  return new ServiceError('invalid_request', message, { sqlstate: '42601', ...(hint === undefined ? {} : { hint }) });
}
