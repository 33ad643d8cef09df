/** How to reach a server as its superuser; `host` may be the folder of its socket. */
export interface ServerLogin {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
}

/** For `DATABASE_URL`. */
export function serverUrl({ host, port, user, password }: ServerLogin): string {
  return `postgres://${user}:${password}@${encodeURIComponent(host)}:${port}/postgres`;
}
