import type { Placement } from '../catalog/organization.ts';
import { RESTRICTED_SUFFIX } from '../placement/restricted-roles.ts';
import { TimeSlices } from '../runtime/event-loop.ts';
import { applyEdits, applyEditsToBytes, type Edits } from '../syntax/edits.ts';
import { introducesSchemas, keywordAt, type LiteralMeaning, NestedEdits, type Scope, SqlReader } from '../syntax/names.ts';
import { contentOf } from '../syntax/scanner.ts';

/** Reading this much takes about a millisecond. */
const READ_AT_ONCE_CHARACTERS = 16 * 1024;

/** Stands before a literal that names a role: `session_user = 'org_…'`, as the server writes it too, and `SET role TO 'org_…'`. */
const BEFORE_ROLE =
  /(?<![.\w])(?:(?:current_user|session_user|current_role|user)\)?(?:::\w+)?\s*(?:=|<>|!=)|set (?:local |session )?(?:role|session_authorization)(?: to| =)?)\s*$/i;
const BEFORE_MAX_CHARACTERS = 64;
/** Stands behind a literal of a type whose values are names, as the server writes it. */
const NAME_TYPE = /::(?:name|regrole)\b/y;

/**
 * The same definition, or quoted name, for a clone, whose schema and roles have other names. Each identifier that is the
 * organization's id, or has it as a word, has the clone's instead: names of tables and columns too, because text does not tell them
 * from the schema. Of literals only those that are names, or SQL, are changed; the wire door put the id into most of these. All others
 * are data.
 */
export function forClone(definition: string, from: Placement, to: Placement): string {
  const names = new CloneNames(definition, from, to);
  names.run();
  return applyEdits(definition, names.edits);
}

/** As {@link forClone}, of many statements, in time slices. */
export async function allForClone(statements: readonly string[], from: Placement, to: Placement): Promise<string[]> {
  const slices = new TimeSlices();
  const renamed: string[] = [];
  for (const statement of statements) {
    const bytes = Buffer.from(statement);
    const names = new CloneNames(bytes.toString('latin1'), from, to);
    while (!names.run(READ_AT_ONCE_CHARACTERS)) await slices.pause();
    renamed.push(await edited(bytes, names.edits, slices));
  }
  return renamed;
}

async function edited(bytes: Buffer, edits: Edits, slices: TimeSlices): Promise<string> {
  const editing = applyEditsToBytes(bytes, edits);
  for (;;) {
    const { done, value } = editing.next();
    if (done) return value.toString();
    await slices.pause();
  }
}

class CloneNames extends SqlReader {
  readonly #edits: NestedEdits;
  readonly #id: string;
  readonly #word: RegExp;
  readonly #to: string;

  constructor(text: string, from: Placement, to: Placement) {
    super(text, text.length, {});
    this.#edits = new NestedEdits(text, false);
    this.#id = from.role;
    this.#word = new RegExp(String.raw`(?<![\w\u0080-\uffff])${from.role}(?=(?:${RESTRICTED_SUFFIX})?(?![\w\u0080-\uffff]))`, 'gi');
    this.#to = to.role;
  }

  get edits(): Edits {
    return this.#edits.edits;
  }

  protected override word(scope: Scope): void {
    const { text, start, end } = scope.lexer;
    const keyword = keywordAt(text, start, end);
    if (keyword === undefined) this.#identifier(scope);
    else if (keyword === 'search_path') this.searchPath(scope);
    else if (keyword !== 'schema') scope.note(keyword);
    else if (introducesSchemas(scope)) scope.expect('schema');
  }

  protected override quotedIdentifier(scope: Scope): void {
    this.#identifier(scope);
  }

  protected override schemaName(scope: Scope): void {
    this.#identifier(scope);
  }

  protected override literal(scope: Scope, meaning: LiteralMeaning | undefined): void {
    const { text, start, end } = scope.lexer;
    if (!text.slice(start, end).includes(this.#id) || (meaning === undefined && !namesRole(scope))) return;
    const content = contentOf(scope.lexer);
    if (content === undefined) return;
    if (meaning === 'sql') this.enter(scope, content, content.text.length);
    else for (const [from, to] of this.#idsIn(content.text)) this.#edits.addWithin(scope, content, from, to, this.#to);
  }

  protected override parameter(): void {}
  protected override endStatement(): void {}

  #identifier(scope: Scope): void {
    const { text, start, end } = scope.lexer;
    if (end - start < this.#id.length) return;
    for (const [from, to] of this.#idsIn(text.slice(start, end))) this.#edits.add(scope, start + from, start + to, this.#to);
  }

  #idsIn(text: string): [start: number, end: number][] {
    return [...text.matchAll(this.#word)].map(({ 0: { length }, index }) => [index, index + length]);
  }
}

/** Whether the literal names a role or a schema, although no function or column that takes names says so. */
function namesRole({ lexer: { text, start, end } }: Scope): boolean {
  NAME_TYPE.lastIndex = end;
  return NAME_TYPE.test(text) || BEFORE_ROLE.test(text.slice(Math.max(0, start - BEFORE_MAX_CHARACTERS), start));
}
