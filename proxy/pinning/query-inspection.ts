import { ServiceError } from '../../src/errors.ts';
import type { FrameScanner } from '../../src/protocol/frame.ts';
import type { Edit } from '../../src/router/schema-rewriting/edits/edits.ts';
import type { SchemaRewriter } from '../../src/router/schema-rewriting/schema-rewriter.ts';
import { MAX_REWRITTEN_BYTES } from '../buffer-limits.ts';
import type { AuditedText } from '../inspection/audited-text.ts';
import type { Batch, DdlAudit } from '../inspection/ddl-audit.ts';
import { NO_TRAITS, type SqlTraits, traitsOf, traitsOfBeginning } from '../inspection/sql-traits.ts';
import { type LargeText, piecesOf, StreamedTraits } from '../inspection/streamed-traits.ts';
import type { UnnamedStatement } from '../prepared/client-statements.ts';
import type { Pins } from './pins.ts';
import { type ProcessIds, translateProcessIds } from './process-ids.ts';

/** Who hears of the texts, and what they are rewritten for. */
export interface InspectionListener {
  /** A statement is about to be sent, or executed again, of which more is to be known than that it runs. */
  statement(traits: SqlTraits): void;
  /** A statement that is on its way says that, too. */
  noticed(traits: SqlTraits): void;
  readonly processIds: ProcessIds;
  /** Where `public` is another schema. */
  readonly view: SchemaRewriter | undefined;
  readonly pins: Pins;
}

/** What goes with a Sync, Query or FunctionCall through the reply queue. */
export interface RequestEnd {
  readonly batch: Batch | undefined;
  /** Names of the client's statements that a Query takes away, in order; those that are gone are not here any more. */
  readonly deallocations: string[];
  /** What was replaced in the text of a Query. */
  readonly edits: readonly Edit[];
  /** The rows are values of search_path, which the client knows in other words. */
  readonly showsSearchPath: boolean;
}

/** The texts in a client's Query and Parse messages: what they say is told, and they are rewritten for the place where they run. */
export class QueryInspection {
  /** What is known of the text that comes next, if it has been rewritten already: until it is sent. */
  placedBefore: LargeText | undefined;
  #isPlain = true;
  #passing: StreamedTraits | undefined;
  readonly #watch: DdlAudit;
  readonly #listener: InspectionListener;

  constructor(watch: DdlAudit, listener: InspectionListener) {
    this.#watch = watch;
    this.#listener = listener;
  }

  /** Nothing of which more is to be known than that it runs has been asked since {@link begin}. */
  get isPlain(): boolean {
    return this.#isPlain;
  }

  /** More has come from the client. */
  begin(): void {
    this.#isPlain = true;
  }

  /** @returns for the audit, a text behind which, in the same transaction, other tables may be seen than by other sessions */
  look(text: string, isWhole: boolean): AuditedText | undefined {
    const { placedBefore } = this;
    if (placedBefore !== undefined) this.#watch.again(placedBefore.audited);
    const audited = placedBefore?.audited ?? this.#watch.statement(text, isWhole);
    if (audited?.isWatched === true) this.#unsettle();
    return audited;
  }

  /** A text that was looked at before is to be run. */
  lookAgain(watched: AuditedText): void {
    this.#watch.again(watched);
    this.#unsettle();
  }

  /** A text that is too long to be kept has been sent to the server under this name. @param name as Latin-1 */
  oversized(name: string, watched: AuditedText): void {
    this.#watch.oversized(name, watched);
  }

  /** What the server has under a name is to be run. @param name as Latin-1 */
  lookAgainByName(name: string): void {
    if (this.#watch.oversizedAgain(name)) this.#unsettle();
  }

  #unsettle(): void {
    this.#listener.pins.unsettled = true;
    this.#isPlain = false;
  }

  tell(traits: SqlTraits | undefined): void {
    if (traits === undefined || traits === NO_TRAITS) return;
    this.#isPlain = false;
    this.#listener.statement(traits);
  }

  tellWhole(text: string): SqlTraits {
    const traits = traitsOf(text);
    this.tell(traits);
    return traits;
  }

  /** Tells of a text of which only the beginning is looked at before it is sent; the rest of it goes {@link by}. */
  tellBeginning(text: string, staysPrepared = false): SqlTraits {
    const traits = { ...traitsOfBeginning(text), staysPrepared };
    this.tell(traits);
    if (this.placedBefore === undefined) this.#passing = new StreamedTraits(text);
    else for (const noticed of this.placedBefore.traits) this.#listener.noticed(noticed);
    return traits;
  }

  /** More of what has been begun, if that was a long text. */
  by({ buffer, end, last }: FrameScanner, start: number): void {
    if (this.#watch.isPassing) {
      for (const piece of piecesOf(buffer, start, end)) if (this.#watch.by(piece)) this.#unsettle();
      if (last) this.#watch.passed();
    }
    if (this.#passing === undefined) return;
    for (const traits of this.#passing.say(buffer, start, end)) this.#listener.noticed(traits);
    if (last) this.#passing = undefined;
  }

  /** @throws ServiceError `payload_too_large`, `too_many_requests` for a text that is to be rewritten and has not come whole */
  demandWhole({ length, last }: FrameScanner): void {
    if (last || this.#listener.view === undefined || this.placedBefore !== undefined) return;
    if (length > MAX_REWRITTEN_BYTES)
      throw new ServiceError('payload_too_large', `a statement may have at most ${MAX_REWRITTEN_BYTES} bytes in this placement`);
    throw new ServiceError('too_many_requests', 'the statements being sent are as large as there is room for', {
      hint: 'Wait for some of them to end, or send less at once.',
    });
  }

  /** The text as it has to be where the organization's `public` is a schema of another name. */
  placed(text: string): { readonly sql: string; readonly edits: readonly Edit[] } {
    const { view } = this.#listener;
    if (view === undefined || this.placedBefore !== undefined) return { sql: text, edits: NO_EDITS };
    const { sql, edits } = view.rewrite(Buffer.from(text, 'latin1'));
    return { sql: edits.length === 0 ? text : sql.toString('latin1'), edits };
  }

  /** @param definition a view that begins with the text; what is kept of it is a copy */
  prepared(text: string, definition: Buffer, watched?: AuditedText): UnnamedStatement {
    const traits = traitsOf(text);
    const { sql, edits } = this.placed(text);
    const translated = traits.mentionsPids ? translateProcessIds(sql, this.#listener.processIds) : { text: sql, signals: [] };
    const changed = translated.text !== text;
    return {
      definition: changed ? Buffer.concat([Buffer.from(translated.text, 'latin1'), definition.subarray(text.length)]) : definition,
      changed,
      traits,
      edits,
      signals: translated.signals,
      watched,
    };
  }

  /** @returns what is to be known of the texts up to here when they are answered, if anything is */
  end(deallocations: string[] = [], edits: readonly Edit[] = NO_EDITS, showsSearchPath = false): RequestEnd | undefined {
    const batch = this.#watch.take();
    const plain = batch === undefined && deallocations.length === 0 && edits.length === 0 && !showsSearchPath;
    return plain ? undefined : { batch, deallocations, edits, showsSearchPath };
  }
}

const NO_EDITS: readonly Edit[] = [];
