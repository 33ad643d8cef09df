import { isAbort } from '../api/client.ts';

/** So much is held in memory until the browser has it. */
const PART_BYTES = 4_000_000;

/** Where a download of any size goes, part by part. */
export interface FileSink {
  write(part: Uint8Array<ArrayBuffer>): Promise<void>;
  /** The file is whole. */
  close(): Promise<void>;
  /** There is to be no file. */
  abort(): Promise<void>;
}

interface WritableFile {
  write(part: Uint8Array<ArrayBuffer>): Promise<void>;
  close(): Promise<void>;
  abort(): Promise<void>;
}

interface FilePicker {
  readonly showSaveFilePicker?: (options: { readonly suggestedName: string }) => Promise<{ createWritable(): Promise<WritableFile> }>;
}

/**
 * A file that is written as its parts come, where the browser lets pages write; else parts that the browser keeps outside of the page's
 * memory, and saves together at the end. To be called at once when somebody has clicked.
 * @returns undefined when nobody has chosen a file
 */
export async function openFileSink(name: string, type: string): Promise<FileSink | undefined> {
  const { showSaveFilePicker } = window as FilePicker;
  if (showSaveFilePicker === undefined) return blobSink(name, type);
  try {
    const handle = await showSaveFilePicker.call(window, { suggestedName: name });
    const file = await handle.createWritable();
    return { write: (part) => file.write(part), close: () => file.close(), abort: () => file.abort().catch(() => undefined) };
  } catch (error) {
    return isAbort(error) ? undefined : blobSink(name, type);
  }
}

function blobSink(name: string, type: string): FileSink {
  const blobs: Blob[] = [];
  let parts: Uint8Array<ArrayBuffer>[] = [];
  let held = 0;
  const flush = () => {
    blobs.push(new Blob(parts));
    parts = [];
    held = 0;
  };
  return {
    async write(part) {
      parts.push(part);
      held += part.length;
      if (held >= PART_BYTES) flush();
    },
    async close() {
      flush();
      saveFile(name, new Blob(blobs, { type }));
    },
    async abort() {
      blobs.length = 0;
      parts = [];
    },
  };
}

/** Lets the browser save a text or bytes under this name. */
export function saveFile(name: string, content: Blob | string): void {
  const url = URL.createObjectURL(typeof content === 'string' ? new Blob([content], { type: 'text/plain' }) : content);
  Object.assign(document.createElement('a'), { href: url, download: name }).click();
  // The download has begun by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
