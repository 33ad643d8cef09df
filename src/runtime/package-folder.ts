import { existsSync, readFileSync } from 'node:fs';

/** The folder with package.json and the reference texts: above the sources, above what they are compiled to, and above the bundle. */
export const PACKAGE_FOLDER: URL = folderWithManifest(new URL('./', import.meta.url));

/** As in package.json. */
export function packageVersion(): string {
  const manifest: { readonly version: string } = JSON.parse(readFileSync(new URL('package.json', PACKAGE_FOLDER), 'utf8'));
  return manifest.version;
}

function folderWithManifest(folder: URL): URL {
  if (existsSync(new URL('package.json', folder))) return folder;
  const above = new URL('../', folder);
  if (above.href === folder.href) throw new Error(`no package.json is above ${import.meta.url}`);
  return folderWithManifest(above);
}
