/** Add-ons of `pg` that come without types, as far as they are used here. */
declare module 'pg-cursor' {
  import type { Submittable } from 'pg';

  export default class Cursor<Row> implements Submittable {
    constructor(text: string, values?: readonly unknown[]);
    submit(connection: import('pg').Connection): void;
    read(rows: number): Promise<Row[]>;
    close(): Promise<void>;
  }
}

declare module 'pg-query-stream' {
  import type { Readable } from 'node:stream';
  import type { Submittable } from 'pg';

  export default class QueryStream extends Readable implements Submittable {
    constructor(text: string, values?: readonly unknown[], config?: { batchSize?: number; highWaterMark?: number; rowMode?: 'array' });
    submit(connection: import('pg').Connection): void;
  }
}

/** Part of every Node, but of no library of types that has nothing else. */
declare namespace WebAssembly {
  function instantiate(bytes: Uint8Array, imports: object): Promise<{ readonly instance: { readonly exports: Record<string, unknown> } }>;
}
