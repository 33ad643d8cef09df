/** Text that becomes an image, and runs a script, wherever it is taken for HTML. */
export const HOSTILE = `<img src=x onerror="globalThis.wasRun = true">`;
