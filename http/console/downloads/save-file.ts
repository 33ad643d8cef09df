/** Lets the browser save a text or bytes under this name. */
export function saveFile(name: string, content: Blob | string): void {
  const url = URL.createObjectURL(typeof content === 'string' ? new Blob([content], { type: 'text/plain' }) : content);
  Object.assign(document.createElement('a'), { href: url, download: name }).click();
  // The download has begun by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
