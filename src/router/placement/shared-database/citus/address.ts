/** Of a node, as Citus knows it. */
export interface Address {
  readonly host: string;
  readonly port: number;
}
