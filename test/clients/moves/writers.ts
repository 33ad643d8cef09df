import type pg from 'pg';
import { eventually } from '../../support/eventually.ts';
import type { TestOrganization, TestService } from '../../support/service.ts';

const AT_EACH_DOOR = 2;
/** How many rows have to be acknowledged before {@link Writers.writeSome} is done. */
const SOME = 40;

/** Clients at both doors that insert one row after another, and note which were acknowledged. */
export class Writers {
  readonly #service: TestService;
  readonly #organization: TestOrganization;
  readonly #acknowledged = new Set<number>();
  #sent = 0;
  #isStopped = false;
  #working: readonly Promise<void>[] = [];

  private constructor(service: TestService, organization: TestOrganization) {
    this.#service = service;
    this.#organization = organization;
  }

  /** @param constraint of the column with the numbers */
  static async start(service: TestService, organization: TestOrganization, constraint = ''): Promise<Writers> {
    const writers = new Writers(service, organization);
    await service.query(organization, `CREATE TABLE written (n int ${constraint}, at timestamptz DEFAULT now())`);
    writers.#working = Array.from({ length: AT_EACH_DOOR }).flatMap(() => [writers.#overWire(), writers.#overHttp()]);
    return writers;
  }

  /** Resolves when more rows have been acknowledged. */
  async writeSome(): Promise<void> {
    const enough = this.#acknowledged.size + SOME;
    await eventually('rows are acknowledged', () => this.#acknowledged.size >= enough);
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.#working);
  }

  /** Acknowledged rows that are not there, rows that nobody has sent, and rows that are there twice. */
  async compare(): Promise<{ readonly lost: number[]; readonly strange: number[]; readonly doubled: number[] }> {
    const { body } = await this.#service.query(this.#organization, 'SELECT n FROM written');
    const found: number[] = body.rows.map(({ n }: { readonly n: number }) => n);
    const unique = new Set(found);
    return {
      lost: [...this.#acknowledged].filter((n) => !unique.has(n)),
      strange: found.filter((n) => n > this.#sent),
      doubled: found.filter((n, index) => found.indexOf(n) !== index),
    };
  }

  async #overHttp(): Promise<void> {
    while (!this.#isStopped) {
      const n = this.#next();
      const { status } = await this.#service.query(this.#organization, 'INSERT INTO written VALUES ($1)', [n]);
      if (status === 200) this.#acknowledged.add(n);
    }
  }

  async #overWire(): Promise<void> {
    while (!this.#isStopped) {
      const client = await this.#service.connect(this.#organization);
      await this.#insert(client).catch(() => {});
      await client.end().catch(() => {});
    }
  }

  async #insert(client: pg.Client): Promise<void> {
    while (!this.#isStopped) {
      const n = this.#next();
      await client.query('BEGIN');
      await client.query({ name: 'insert', text: 'INSERT INTO written VALUES ($1)', values: [n] });
      await client.query('COMMIT');
      this.#acknowledged.add(n);
    }
  }

  #next(): number {
    this.#sent += 1;
    return this.#sent;
  }
}
