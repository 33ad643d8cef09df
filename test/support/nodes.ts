import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

/** A Node on this machine. */
export interface NodeBinary {
  readonly path: string;
  /** As in `process.versions.node`. */
  readonly version: string;
}

/** Where version managers, npx and archives of nodejs.org put theirs; a star is any one folder. */
const PLACES = [
  '~/.nvm/versions/node/*/bin/node',
  '~/.local/share/fnm/node-versions/*/installation/bin/node',
  '~/.volta/tools/image/node/*/bin/node',
  '~/.asdf/installs/nodejs/*/bin/node',
  '~/.npm/_npx/*/node_modules/node/bin/node',
  '~/n/n/versions/node/*/bin/node',
  '/usr/local/n/versions/node/*/bin/node',
  '/usr/local/lib/nodejs/*/bin/node',
  '/opt/*/bin/node',
];

/** By major version: this one, those in `TEST_NODES` (paths between colons), those on the PATH, and those in usual places. */
export function installedNodes(): ReadonlyMap<number, NodeBinary> {
  const onPath = (process.env.PATH ?? '').split(':').map((folder) => join(folder, 'node'));
  const named = (process.env.TEST_NODES ?? '').split(':').filter((path) => path !== '');
  const paths = new Set([process.execPath, ...named, ...onPath, ...PLACES.flatMap(matches)]);
  const found = new Map<number, NodeBinary>();
  for (const path of paths) {
    const version = versionOf(path);
    const major = Number(version?.split('.')[0]);
    if (version !== undefined && !found.has(major)) found.set(major, { path, version });
  }
  return found;
}

function matches(place: string): string[] {
  const [before = '', after = ''] = place.replace('~', homedir()).split('*');
  try {
    return readdirSync(before).map((name) => `${before}${name}${after}`);
  } catch {
    return [];
  }
}

/** @returns undefined where there is none, or none that runs here */
function versionOf(path: string): string | undefined {
  try {
    const printed = execFileSync(path, ['-p', 'process.versions.node'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    return printed.trim();
  } catch {
    return undefined;
  }
}
