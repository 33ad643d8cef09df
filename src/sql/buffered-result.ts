import { ServiceError } from '../errors.ts';
import type { FieldDescription } from '../protocol/backend.ts';
import type { ResultLayout, StatementOutcome } from './layout.ts';
import type { Warning } from './notices.ts';
import type { Replies } from './pipeline.ts';
import { ResultWriter, typedFields } from './result.ts';
import type { Session } from './session.ts';
import { TypeCatalog } from './type-catalog.ts';

/** What the results of one reply may take up together, since they are kept until the transaction is committed. */
export class ResultBudget {
  readonly #session: Session;
  readonly #maxBytes: number;
  #bytes = 0;

  constructor(session: Session, maxBytes: number) {
    this.#session = session;
    this.#maxBytes = maxBytes;
  }

  /** @returns whether there was room */
  spend(bytes: number): boolean {
    this.#bytes += bytes;
    if (this.#bytes <= this.#maxBytes) return true;
    this.#session.abort(
      new ServiceError('response_too_large', `the results exceed ${this.#maxBytes} bytes`, {
        hint: 'Ask for less, or use /api/query, which streams.',
      }),
    );
    return false;
  }
}

/**
 * A result that is kept whole. Where a column's type is not known yet (statements are not described one by one in a
 * transaction), its rows are kept as they came until {@link settle}.
 */
export class BufferedResult implements Replies {
  readonly #types: TypeCatalog;
  readonly #budget: ResultBudget;
  readonly #writer: ResultWriter;
  #fields: readonly FieldDescription[] = [];
  #unwritten: Buffer[] | undefined;

  constructor(session: Session, layout: ResultLayout, budget: ResultBudget) {
    this.#types = TypeCatalog.of(session.lease.backend);
    this.#budget = budget;
    this.#writer = new ResultWriter(layout);
  }

  /** Types of the columns. */
  get oids(): readonly number[] {
    return this.#fields.map(({ dataTypeOid }) => dataTypeOid);
  }

  fields(fields: readonly FieldDescription[]): void {
    this.#fields = fields;
    if (this.#types.knows(this.oids)) this.#writer.open(typedFields(fields, this.#types));
    else this.#unwritten = [];
    this.#budget.spend(this.#writer.out.length);
  }

  row(source: Buffer, start: number, end: number): void {
    if (this.#unwritten !== undefined) {
      if (this.#budget.spend(end - start)) this.#unwritten.push(Buffer.from(source.subarray(start, end)));
      return;
    }
    const before = this.#writer.out.length;
    this.#writer.row(source, start);
    if (!this.#budget.spend(this.#writer.out.length - before)) this.#writer.out.length = before;
  }

  /** Writes what is still to be written. The types must be known by now. */
  settle(outcome: StatementOutcome, warnings: readonly Warning[]): Buffer {
    if (this.#unwritten !== undefined) {
      this.#writer.open(typedFields(this.#fields, this.#types));
      for (const row of this.#unwritten) this.#writer.row(row, 0);
    }
    this.#writer.close(outcome, warnings);
    return this.#writer.out.take();
  }
}
