import { replaceOutsideLiterals } from '../../../../syntax/redaction.ts';
import { isQuotedIdentifier } from '../../../../syntax/scanner.ts';

/** A longer row stays as it is: it would take milliseconds to read. */
export const PLAN_ROW_MAX_CHARACTERS = 131_072;

/** Where the tasks of a job begin, in each format of EXPLAIN; or what runs on the coordinator again, after the tasks of another part. */
const BOUNDARY = /^ *(?:(["<]?Tasks[ -]Shown\b)|-> {2}Distributed Subplan |["<]?PlannedStmt\b)/gm;
const NODE = /^( *(?:- )?["<]?Node["<>: ]{1,4})host=\S+ port=\d+ dbname=[^\s"<]+/gm;

const NAME = String.raw`(?:"(?:[^"]|"")*|[\w$\x80-\xff]*)_(\d{6,})(?![\w$(])`;
/** A table in the text format, not a function, CTE or subquery. */
const SCANNED = new RegExp(
  String.raw`^ *(?:->  )?(?:(?:Parallel|Async) )*(?:(?:Seq|Sample|Index|Index Only|Bitmap Heap|Tid|Tid Range|Foreign|Custom) Scan\b.*?|(?:Foreign )?(?:Insert|Update|Delete)|Merge) on (?:\w+\.)?${NAME}`,
  'gm',
);
const RELATION_NAME = /^ *(?:- )?["<]?Relation[ -]Name["<>: ]{1,4}.*_(\d{6,})["<]/gm;
/** The client's name for the table is the table's own: then PostgreSQL shows it once. */
const REPEATED_NAME = /(?<= on (?:\w+\.)?)("(?:[^"]|"")*"|[^\s"]+) \1(?= |$)/;

const JSON_STRING = /"(?:[^"\\]|\\.)*"?/g;
const XML_TEXT = /(?<=>)[^<>]+(?=<)/g;

/**
 * The rows of one EXPLAIN in the words of the client: without the workers' addresses, the numbers of shards and the organization's schema.
 * Only what Citus says of its tasks is changed, and no string in it. The shards are those whose tables the plan shows, so that a name which
 * ends in digits stays whole.
 */
export class ExplainedTasks {
  readonly #queried: RegExp;
  readonly #schemaProperty: RegExp;
  readonly #qualifier: RegExp;
  /** What may have to be changed. */
  readonly #suspect: RegExp;
  readonly #suspectLine: RegExp;
  readonly #shards = new Set<string>();
  #format: 'text' | 'json' | 'xml' | undefined;
  #isInTasks = false;

  /** @param schema the organization's, which needs no quotes */
  constructor(schema: string) {
    const suspect = `(?:_\\d{6}|${schema})`;
    this.#queried = new RegExp(String.raw`(?:\b(?:FROM|JOIN|INTO|UPDATE|USING|ONLY)|,) \(*${schema}\.${NAME}`, 'g');
    this.#schemaProperty = new RegExp(`^( *(?:- )?["<]?Schema["<>: ]{1,4})${schema}(?=["<])`, 'gm');
    this.#qualifier = new RegExp(String.raw`(?<![\w$])${schema}(?=\.)`, 'g');
    this.#suspect = new RegExp(suspect);
    this.#suspectLine = new RegExp(`^.*${suspect}.*$`, 'gm');
  }

  /** @param row the next row, in any encoding that contains ASCII, decoded as Latin-1: a line of the text format, or the whole plan */
  row(row: string): string {
    this.#format ??= formatOf(row);
    if (row.length > PLAN_ROW_MAX_CHARACTERS || (!this.#isInTasks && !row.includes('Tasks'))) return row;
    let shown = '';
    let from = 0;
    for (const { index, 1: tasks } of row.matchAll(BOUNDARY)) {
      shown += this.#part(row.slice(from, index));
      from = index;
      this.#isInTasks = tasks !== undefined;
    }
    return shown + this.#part(row.slice(from));
  }

  /** @param part of a row, from one boundary to the next */
  #part(part: string): string {
    if (!this.#isInTasks) return part;
    this.#learn(part.matchAll(this.#format === 'text' ? SCANNED : RELATION_NAME));
    return part
      .replace(NODE, '$1worker')
      .replace(this.#schemaProperty, '$1public')
      .replace(this.#suspectLine, (line) => this.#line(line));
  }

  #learn(tables: Iterable<RegExpExecArray>): void {
    for (const [, shard = ''] of tables) this.#shards.add(shard);
  }

  #line(line: string): string {
    if (this.#format === 'text') return this.#expression(line).replace(REPEATED_NAME, '$1');
    if (this.#format === 'xml') return line.replace(XML_TEXT, (text) => this.#property(text));
    return line.replace(JSON_STRING, (string) => {
      if (!this.#suspect.test(string)) return string;
      const text = String(JSON.parse(string));
      const changed = this.#property(text);
      return changed === text ? string : JSON.stringify(changed);
    });
  }

  /** A name, which may have quotes in it that do not begin a string, or an expression. */
  #property(text: string): string {
    const end = /_(\d{6,})$/.exec(text);
    return end !== null && this.#shards.has(end[1] ?? '') ? text.slice(0, end.index) : this.#expression(text);
  }

  #expression(text: string): string {
    return replaceOutsideLiterals(
      text,
      (code) => this.#code(code),
      (_, kind) => isQuotedIdentifier(kind),
    );
  }

  #code(code: string): string {
    this.#learn(code.matchAll(this.#queried));
    return code
      .replace(/_(\d{6,})(?![\w$])/g, (suffix, shard: string) => (this.#shards.has(shard) ? '' : suffix))
      .replace(this.#qualifier, 'public');
  }
}

function formatOf(beginning: string): 'text' | 'json' | 'xml' {
  if (beginning.startsWith('<explain')) return 'xml';
  // Strings in YAML are written as in JSON.
  return beginning.startsWith('[') || beginning.startsWith('- ') ? 'json' : 'text';
}
