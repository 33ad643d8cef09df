import { readdir, rm, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Binaries } from './binaries.ts';
import type { DataDirectory } from './data-directory.ts';
import { makeSharedFolder } from './files-and-folders.ts';

/** Languages whose interpreters do not check for interrupts: neither cancel nor terminate stops their functions. */
const UNINTERRUPTIBLE = /pl(perl|tcl|python)/;

/**
 * Makes a folder of links to the extensions that organizations may create. Every role may create trusted extensions, and only
 * an extension's control file tells whether it is trusted.
 * @returns the value of `extension_control_path`
 * @see https://www.postgresql.org/docs/18/runtime-config-client.html#GUC-EXTENSION-CONTROL-PATH
 */
export async function linkExtensions({ home }: DataDirectory, { postgres }: Binaries): Promise<string> {
  const installed = join(dirname(dirname(postgres)), 'share', 'postgresql', 'extension');
  const offered = join(home, 'share');
  await rm(offered, { recursive: true, force: true });
  await makeSharedFolder(offered);
  await makeSharedFolder(join(offered, 'extension'));
  for (const name of await readdir(installed)) {
    if (!UNINTERRUPTIBLE.test(name)) await symlink(join(installed, name), join(offered, 'extension', name));
  }
  // A colon separates folders in the setting, so with one in the path no extension would be found.
  return offered.includes(':') ? '$system' : offered;
}
