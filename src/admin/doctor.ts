import { concernAboutReleases, concernsAbout, type ServerAge } from '../placement/server-release.ts';
import { textOf } from '../protocol/backend.ts';

/** What has been looked at, and whether it is as it should be. */
export interface Finding {
  readonly needsAttention: boolean;
  readonly text: string;
}

/** A server that is looked at. */
export interface ExaminedServer {
  readonly name: string;
  /** @throws the reason for which it does not answer */
  readAge(): Promise<ServerAge>;
}

/** Looks at each server, one after the other. */
export async function examineServers(servers: readonly ExaminedServer[], now: Date): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const server of servers) findings.push(...(await examineServer(server)));
  const concern = concernAboutReleases(now);
  if (concern !== undefined) findings.push({ needsAttention: true, text: concern });
  return findings;
}

async function examineServer({ name, readAge }: ExaminedServer): Promise<Finding[]> {
  try {
    const age = await readAge();
    const concerns = concernsAbout(age, name);
    if (concerns.length > 0) return concerns.map((text) => ({ needsAttention: true, text }));
    const release = `${Math.floor(age.version / 10_000)}.${age.version % 10_000}`;
    return [
      { needsAttention: false, text: `the PostgreSQL server of the cluster ${name} is ${release}: no fixes that it lacks are known` },
    ];
  } catch (error) {
    return [{ needsAttention: true, text: `the PostgreSQL server of the cluster ${name} does not answer: ${textOf(error)}` }];
  }
}

/** A line for each finding. */
export function findingsTable(findings: readonly Finding[]): string {
  return findings.map(({ needsAttention, text }) => `${needsAttention ? 'ATTENTION' : 'ok'.padEnd(9)}  ${text}`).join('\n');
}
