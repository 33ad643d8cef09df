import { type FrameScanner, HEADER_BYTES } from '../src/protocol/framing.ts';
import { decodeFrontendMessage } from '../src/protocol/frontend.ts';
import { replaceOutsideLiterals } from '../src/syntax/redaction.ts';
import { type LexerOptions, lowerCase } from '../src/syntax/scanner.ts';
import { LISTED_SESSIONS } from '../src/syntax/session-traits.ts';
import { eachStatement } from '../src/syntax/statements.ts';

/**
 * A session keeps one process id, which Postern has made, while its backends change. SQL that uses process ids in the ways
 * that clients do is translated before it is sent.
 */
export interface ProcessIds {
  /** The id that this session's client knows. */
  readonly own: number;
  /** What `inet_client_addr()` and its sisters are to the client. */
  readonly addresses: SessionAddresses;
  /** Whether the views of activity show the ids of sessions, where they are told of these. */
  readonly areShown: boolean;
  /** What these views are told: the organization's sessions that its client may see. */
  shown(): string;
  /** The backend that a session has at the moment. @returns undefined for an id that is no session's, 0 for one at rest */
  backendOf(processId: number): number | undefined;
  /** Cancels or ends a session of the same organization. @returns resolves when the signal has arrived; undefined where nobody has to wait for that */
  signal(processId: number, signal: Signal): Promise<void> | undefined;
  /** The session with this id now works on this backend. */
  moved(backend: number): void;
  /** The id of the session whose notification this backend sent. */
  userOf(backend: number): number | undefined;
}

/** What `pg_blocking_pids()` returns: by the process id of the session that waits, and by that of its backend. Those that wait for none are missing. */
export type Blockers = ReadonlyMap<number, readonly number[]>;

/** The addresses of a client's connection; null: not known, as for a connection by a Unix socket. */
export interface SessionAddresses {
  readonly inet_client_addr: string | null;
  readonly inet_client_port: number | null;
  readonly inet_server_addr: string | null;
  readonly inet_server_port: number | null;
}

type Signal = 'cancel' | 'terminate';

/** A signal whose target is a parameter: `pg_cancel_backend($1)`. */
export interface ParameterSignal {
  /** From 1. */
  readonly parameter: number;
  readonly signal: Signal;
}

/** A signal to a session of the same organization. */
export interface DueSignal {
  readonly processId: number;
  readonly signal: Signal;
}

interface Translated {
  readonly text: string;
  /** The signals that are sent with each Bind. */
  readonly signals: readonly ParameterSignal[];
  /** The signals that the text itself asks for. */
  readonly due: readonly DueSignal[];
  /** The views of activity that it reads have to be told of sessions. */
  readonly listsSessions: boolean;
}

const OWN_ID = /(?:\bpg_catalog\s*\.\s*)?(?:\bpg_backend_pid|"pg_backend_pid")\s*\(\s*\)/gi;
const ADDRESS = /(?:\bpg_catalog\s*\.\s*)?\b(inet_(?:client|server)_(?:addr|port))\s*\(\s*\)/gi;
/** Up to the parenthesis before its arguments. */
const SIGNAL = /(?:\bpg_catalog\s*\.\s*)?(?:\bpg_(cancel|terminate)_backend|"pg_(cancel|terminate)_backend")\s*\(/gi;
/** Up to the parenthesis before its argument. */
const BLOCKERS = /(?:\bpg_catalog\s*\.\s*)?(?:\bpg_blocking_pids|"pg_blocking_pids")\s*\(/gi;
/** Longer arguments are not read. */
const ARGUMENTS_MAX_CHARACTERS = 1_000;
const NAMED_ARGUMENT = /^(\w+)\s*(?:=>|:=)\s*/;
/** A number that may be a session's id, a parameter, or the session's own; in parentheses, or converted. */
const CONVERTED = String.raw`\s*\)*\s*(?:::\s*\w+\s*)?\)*$`;
const NUMBER = new RegExp(String.raw`^[(\s]*'?(\d{8,10})'?${CONVERTED}`);
const PARAMETER = new RegExp(String.raw`^[(\s]*\$(\d{1,5})${CONVERTED}`);
const OWN_ONLY = new RegExp(String.raw`^[(\s]*${OWN_ID.source}${CONVERTED}`, 'i');
/** A number that may be a session's id, next to the word. */
const COMPARED = /\b(pid\s*=\s*)'?(\d{8,10})'?/gi;

/** Ids of processes are lower than this, and those that Postern makes are higher. PID_MAX_LIMIT of Linux; other systems' are lower. */
const SERVER_IDS_END = 4_194_304;

/** Whether the text may call `pg_blocking_pids()`. @param text one that mentions process ids */
export function asksBlockers(text: string): boolean {
  return /pg_blocking_pids/i.test(text);
}

/**
 * Translates process ids between those of Postern and those of the server. Postern sends a signal to a session itself, and
 * puts the function's result in the place of the call. A session's signal to itself is left to the server. Definitions,
 * strings, function bodies and comments are not translated, because they may outlive the session.
 *
 * Where a signal's target is found out by the server (`pg_cancel_backend(p) FROM …`), all ids in the statement are the server's, and in
 * the whole text if it reads the views of activity, too. Otherwise these show the ids of sessions.
 * @param options how the server reads the text
 * @param blockers who waits for whom at the moment; undefined: it is not known, and `pg_blocking_pids()` is left to the server
 */
export function translateProcessIds(text: string, ids: ProcessIds, options?: LexerOptions, blockers?: Blockers): Translated {
  const signals: ParameterSignal[] = [];
  const due: DueSignal[] = [];
  let listsSessions = false;
  const change = (code: string) => {
    let changed = '';
    listsSessions = ids.areShown && LISTED_SESSIONS.test(code) && !findsTargets(code);
    let end = 0;
    for (const statement of eachStatement(code)) {
      if (statement === undefined) continue;
      changed += code.slice(end, statement.start) + translateStatement(statement.text, ids, { signals, due, blockers, listsSessions });
      end = statement.start + statement.text.length;
    }
    return changed + code.slice(end);
  };
  const translated = replaceOutsideLiterals(text, change, (token) => PROCESS_ID.test(token), options);
  return { text: translated, signals, due, listsSessions };
}

/** Whether the server finds out whom a signal is for. */
function findsTargets(code: string): boolean {
  for (const match of code.matchAll(SIGNAL)) {
    const target = readCall(code, match.index + match[0].length)?.target;
    if (target === undefined || ![OWN_ONLY, NUMBER, PARAMETER].some((known) => known.test(target))) return true;
  }
  return false;
}

/** White space, and comments, in whose place there is a number between NULs. */
const GAP = String.raw`(?:\s|\0\d+\0)`;
const DEFINITION = new RegExp(String.raw`^${GAP}*(?:create|alter)\b`, 'i');
/** CREATE TABLE … AS runs its query once. */
const TABLE_OF_ROWS = new RegExp(
  String.raw`^${GAP}*create${GAP}+(?:(?:global|local)${GAP}+)?(?:(?:temp|temporary|unlogged)${GAP}+)?table${GAP}[^(]*?(?:\([^()]*\)[^()]*)?\bas\b`,
  'i',
);
const PROCESS_ID = /^(?:'\d{8,10}'|"pg_(?:backend_pid|cancel_backend|terminate_backend|blocking_pids|stat_\w+)")$/;
/** After FROM or JOIN a query needs an alias, before PostgreSQL 16. */
const BEFORE_TABLE = /\b(?:from|join)\s*$/i;
const HAS_ALIAS =
  /^\s*(?!(?:where|on|using|join|inner|left|right|full|cross|natural|group|order|having|limit|offset|fetch|for|union|intersect|except|window|tablesample|returning)\b)(?:[a-z_\x80-\xff]|\0)/i;

interface Found {
  readonly signals: ParameterSignal[];
  readonly due: DueSignal[];
  readonly blockers: Blockers | undefined;
  readonly listsSessions: boolean;
}

function translateStatement(original: string, ids: ProcessIds, { signals, due, blockers, listsSessions }: Found): string {
  if (DEFINITION.test(original) && !TABLE_OF_ROWS.test(original)) return original;
  const code = blockers === undefined ? original : replaceBlockers(original, blockers);
  // A view that is not told of sessions has the server's ids, so `pid <> pg_backend_pid()` must compare with the server's.
  let hasServerIds = !listsSessions && LISTED_SESSIONS.test(code);
  const parts: string[] = [];
  let from = 0;
  /** Signals to a session itself stay; what is between them is not yet changed. */
  const between: number[] = [];
  for (const match of code.matchAll(SIGNAL)) {
    if (match.index < from) continue;
    const call = readCall(code, match.index + match[0].length);
    const pid = call?.target;
    if (pid === undefined || call === undefined) {
      hasServerIds = true;
      continue;
    }
    const replaced = OWN_ONLY.test(pid) ? code.slice(match.index, call.end) : replacedCall(signalOf(match), call, ids, { signals, due });
    if (replaced === undefined) {
      hasServerIds ||= !NUMBER.test(pid);
      continue;
    }
    between.push(parts.push(code.slice(from, match.index)) - 1);
    parts.push(replaced);
    from = call.end;
  }
  between.push(parts.push(code.slice(from)) - 1);
  for (const index of between) parts[index] = translateIds(parts[index] ?? '', ids, hasServerIds);
  return parts.join('');
}

/** Of one statement: what stands for a call is longer than the call. The server refuses those behind them. */
const BLOCKERS_CALLS_MAX = 16;

/** Puts who blocks whom in the place of the calls that ask for it. */
function replaceBlockers(code: string, blockers: Blockers): string {
  const none = "'{}'::pg_catalog.int4[]";
  const cases = [...blockers].map(([processId, by]) => ` WHEN ${processId} THEN '{${by.join()}}'::pg_catalog.int4[]`).join('');
  let changed = '';
  let from = 0;
  let calls = 0;
  for (const match of code.matchAll(BLOCKERS)) {
    if (match.index < from) continue;
    calls += 1;
    if (calls > BLOCKERS_CALLS_MAX) break;
    const call = readCall(code, match.index + match[0].length);
    if (!call?.target) continue;
    const value = cases === '' ? `(${call.target})::pg_catalog.int4 WHEN 0 THEN ${none}` : `(${call.target})::pg_catalog.int4${cases}`;
    const before = code.slice(from, match.index);
    const alias = BEFORE_TABLE.test(before.slice(-20)) && !HAS_ALIAS.test(code.slice(call.end)) ? ' AS pg_blocking_pids' : '';
    changed += `${before}(SELECT CASE ${value} ELSE ${none} END AS pg_blocking_pids)${alias}`;
    from = call.end;
  }
  return changed + code.slice(from);
}

interface SignalCall {
  /** The text of the argument that is the process id; undefined if there is none. */
  readonly target: string | undefined;
  /** That of the timeout, if there is one. */
  readonly timeout: string | undefined;
  /** The offset behind the call. */
  readonly end: number;
}

/** @param start the offset of the arguments @returns undefined if they are too long, or do not end */
function readCall(code: string, start: number): SignalCall | undefined {
  const given: string[] = [];
  let depth = 0;
  let from = start;
  const last = Math.min(code.length, start + ARGUMENTS_MAX_CHARACTERS);
  for (let at = start; at < last; at += 1) {
    const character = code[at];
    if (character === '(' || character === '[') depth += 1;
    else if (depth > 0 && (character === ')' || character === ']')) depth -= 1;
    else if (depth === 0 && (character === ',' || character === ')')) {
      given.push(code.slice(from, at).trim());
      from = at + 1;
      if (character === ')') return { ...argumentsOf(given), end: at + 1 };
    }
  }
  return undefined;
}

function argumentsOf(given: readonly string[]): Omit<SignalCall, 'end'> {
  const byName = new Map<string, string>();
  for (const [index, text] of given.entries()) {
    const name = NAMED_ARGUMENT.exec(text);
    byName.set(name?.[1]?.toLowerCase() ?? (index === 0 ? 'pid' : 'timeout'), text.slice(name?.[0].length ?? 0));
  }
  return { target: byName.get('pid'), timeout: byName.get('timeout') };
}

/** @returns what stands for the call; undefined if the server has to be asked */
function replacedCall(
  signal: Signal,
  { target = '', timeout }: SignalCall,
  ids: ProcessIds,
  { signals, due }: { readonly signals: ParameterSignal[]; readonly due: DueSignal[] },
): string | undefined {
  const name = `pg_${signal}_backend`;
  const given = timeout === undefined || /^\d+$/.test(timeout) ? '' : ` WHERE (${timeout})::int8 IS NOT NULL`;
  const processId = Number(NUMBER.exec(target)?.[1]);
  if (ids.backendOf(processId) !== undefined) {
    due.push({ processId, signal });
    return `(SELECT true AS ${name}${given})`;
  }
  const parameter = PARAMETER.exec(target)?.[1];
  if (parameter === undefined) return undefined;
  signals.push({ parameter: Number(parameter), signal });
  const processIdGiven = `$${parameter}::int4`;
  const asked = `pg_catalog.${name}(${processIdGiven}${timeout === undefined ? '' : `, ${timeout}`})`;
  return `(SELECT CASE WHEN ${processIdGiven} > ${SERVER_IDS_END} THEN true ELSE ${asked} END AS ${name}${given})`;
}

function translateIds(code: string, ids: ProcessIds, hasServerIds: boolean): string {
  const compared = !hasServerIds
    ? code
    : code.replace(COMPARED, (comparison, words: string, digits: string) => {
        const backend = ids.backendOf(Number(digits));
        return backend === undefined ? comparison : `${words}${backend}`;
      });
  const located = replaceCalls(compared, ADDRESS, (name) => addressOf(lowerCase(name) as keyof SessionAddresses, ids.addresses));
  return hasServerIds ? located : replaceCalls(located, OWN_ID, () => `${ids.own} AS pg_backend_pid`);
}

/** @param column the value, with the function's name as that of its column */
function replaceCalls(code: string, calls: RegExp, column: (name: string) => string): string {
  return code.replace(calls, (call: string, ...found: (string | number)[]) => {
    const at = found.findLast((each) => typeof each === 'number') ?? 0;
    const value = column(String(found[0]));
    const needsAlias = BEFORE_TABLE.test(code.slice(Math.max(0, at - 20), at)) && !HAS_ALIAS.test(code.slice(at + call.length));
    return `(SELECT ${value})${needsAlias ? value.slice(value.lastIndexOf(' AS ')) : ''}`;
  });
}

function addressOf(name: keyof SessionAddresses, addresses: SessionAddresses): string {
  const type = name.endsWith('addr') ? 'inet' : 'int4';
  const value = addresses[name];
  return `${value === null ? 'NULL' : `'${value}'`}::pg_catalog.${type} AS ${name}`;
}

function signalOf([, word, quoted]: RegExpMatchArray): Signal {
  return (word ?? quoted)?.toLowerCase() === 'cancel' ? 'cancel' : 'terminate';
}

/** The process id in a Bind's parameter, in text or as int4 or int8. */
function processIdOf(value: Buffer | null | undefined, format: number): number | undefined {
  if (value == null) return undefined;
  if (format === 0) return Number(value.toString('latin1'));
  if (value.length === 4) return value.readInt32BE(0);
  return value.length === 8 ? Number(value.readBigInt64BE(0)) : undefined;
}

/** The signals of a Bind whose statement calls `pg_cancel_backend($1)`. */
export function parameterSignals(
  signals: readonly ParameterSignal[],
  { type, buffer, start, end, last }: FrameScanner,
): readonly DueSignal[] {
  if (!last) return NO_SIGNALS;
  const bind = decodeFrontendMessage(type, buffer.subarray(start + HEADER_BYTES, end));
  if (bind.name !== 'Bind') return NO_SIGNALS;
  const due: DueSignal[] = [];
  for (const { parameter, signal } of signals) {
    const formats = bind.parameterFormats;
    const processId = processIdOf(bind.parameters[parameter - 1], formats[formats.length === 1 ? 0 : parameter - 1] ?? 0);
    if (processId !== undefined) due.push({ processId, signal });
  }
  return due;
}

export const NO_SIGNALS: readonly never[] = [];
