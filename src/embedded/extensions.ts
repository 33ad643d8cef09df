import { readdir, rm, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Binaries } from './binaries.ts';
import { type DataDirectory, makeSharedFolder } from './directory.ts';

/** Languages whose interpreters look for no signal of the server's: what runs in them obeys neither cancel nor terminate. */
const UNINTERRUPTIBLE = /pl(perl|tcl|python)/;

/**
 * Links to the extensions that organizations may choose from. Those that are trusted can be made by all, and only the file
 * that describes one says whether it is.
 * @returns for `extension_control_path`
 * @see https://www.postgresql.org/docs/18/runtime-config-client.html#GUC-EXTENSION-CONTROL-PATH
 */
export async function offerExtensions({ home }: DataDirectory, { postgres }: Binaries): Promise<string> {
  const installed = join(dirname(dirname(postgres)), 'share', 'postgresql', 'extension');
  const offered = join(home, 'share');
  await rm(offered, { recursive: true, force: true });
  await makeSharedFolder(offered);
  await makeSharedFolder(join(offered, 'extension'));
  for (const name of await readdir(installed)) {
    if (!UNINTERRUPTIBLE.test(name)) await symlink(join(installed, name), join(offered, 'extension', name));
  }
  // A colon would end the folder's name, and none could be chosen at all.
  return offered.includes(':') ? '$system' : offered;
}
