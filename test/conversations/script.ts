import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import type { Target } from './target.ts';

/**
 * A script file holds conversations in this form (README.md explains every part):
 *
 *     === What holds, in one sentence (WIRE scenarios)
 *     needs backends=2 version>=17
 *     A login application_name=x       an action of client A
 *     A> Query SELECT 1                A sends; lines that follow each other go out in one write
 *     A< DataRow 1                     A receives; exactly this, up to the last of these messages
 *     A[postern]< …                    only when the target is Postern; also [plain], [<18], [>=18], [database], [schema]
 *     A> repeat 3                      the deeper-indented lines below, three times; {{i}} counts from 1
 *     A>   Sync
 */
export interface Conversation {
  readonly file: string;
  readonly line: number;
  readonly title: string;
  /** Sessions that are busy at the same time, at most. */
  readonly backends: number;
  /** First major version of PostgreSQL that can hold this conversation. */
  readonly version: number;
  /** The only placement that can, if not both. */
  readonly placement: string | undefined;
  readonly steps: readonly Step[];
}

export interface Step {
  readonly kind: 'send' | 'expect' | 'act';
  /** The client's letter. */
  readonly actor: string;
  readonly lines: readonly Line[];
}

export interface Line {
  readonly number: number;
  readonly text: string;
  readonly only: string | undefined;
}

interface SourceLine extends Line {
  readonly kind: Step['kind'];
  readonly actor: string;
}

const LINE = /^(?<actor>[A-Z])(?:\[(?<only>[^\]]+)\])?(?<arrow>[<>]?) ?(?<text>.*)$/;
const KINDS: Record<string, Step['kind']> = { '>': 'send', '<': 'expect', '': 'act' };

export function readScript(path: string): Conversation[] {
  return parseScript(basename(path), readFileSync(path, 'utf8'));
}

/** @throws Error that names file and line of what cannot be read */
export function parseScript(file: string, text: string): Conversation[] {
  const lines = text.split('\n');
  const starts = lines.flatMap((line, index) => (line.startsWith('=== ') ? [index] : []));
  return starts.map((start, n) => parseConversation(file, lines.slice(start, starts[n + 1]), start));
}

function parseConversation(file: string, lines: readonly string[], offset: number): Conversation {
  const needs = lines.find((line) => line.startsWith('needs ')) ?? '';
  const need = (pattern: RegExp, otherwise: number) => Number(pattern.exec(needs)?.[1] ?? otherwise);
  return {
    file,
    line: offset + 1,
    title: lines[0]?.slice(4) ?? '',
    backends: need(/backends=(\d+)/, 1),
    version: need(/version>=(\d+)/, 15),
    placement: /placement=(\w+)/.exec(needs)?.[1],
    steps: [...parseSteps(file, lines, offset)],
  };
}

function* parseSteps(file: string, lines: readonly string[], offset: number): Generator<Step> {
  let run: SourceLine[] = [];
  for (const [index, text] of [...lines, ''].entries()) {
    const line = parseLine(file, text, offset + index + 1);
    const [first] = run;
    if (first && !(line && line.kind === first.kind && line.actor === first.actor && line.kind !== 'act')) {
      yield { kind: first.kind, actor: first.actor, lines: unroll(run) };
      run = [];
    }
    if (line) run.push(line);
  }
}

function parseLine(file: string, text: string, number: number): SourceLine | undefined {
  if (text.trim() === '' || /^(#|===|needs )/.test(text)) return undefined;
  const parts = LINE.exec(text)?.groups;
  const kind = KINDS[parts?.arrow ?? '?'];
  if (!kind) throw new Error(`${file}:${number}: not a line of a conversation: ${text}`);
  return { number, kind, actor: parts?.actor ?? '', only: parts?.only, text: parts?.text ?? '' };
}

/** Writes every `repeat N` out. */
function unroll(lines: readonly Line[]): Line[] {
  const result: Line[] = [];
  for (let index = 0; index < lines.length; ) {
    const line = lines[index++];
    if (!line) break;
    const times = /^\s*repeat (\d+)$/.exec(line.text)?.[1];
    if (times === undefined) {
      result.push({ ...line, text: line.text.trimStart() });
      continue;
    }
    const start = index;
    while (indent(lines[index]) > indent(line)) index++;
    for (let i = 1; i <= Number(times); i++) {
      const body = lines.slice(start, index).map((each) => ({ ...each, text: each.text.replaceAll('{{i}}', String(i)) }));
      result.push(...unroll(body));
    }
  }
  return result;
}

function indent(line: Line | undefined): number {
  return line ? line.text.search(/\S/) : -1;
}

/** Whether a line marked `[only]` counts for this target. */
export function applies(only: string | undefined, target: Target): boolean {
  if (only === undefined) return true;
  const bound = /^(<|>=)(\d+)$/.exec(only);
  if (bound) return bound[1] === '<' ? target.version < Number(bound[2]) : target.version >= Number(bound[2]);
  if (only === 'database' || only === 'schema') return only === target.placement;
  if (only !== 'plain' && only !== 'postern') throw new Error(`unknown condition: [${only}]`);
  return only === target.kind;
}
