let loading: Promise<void> | undefined;

/** The style sheet of all screens but the first; it is loaded once. */
export function loadScreensStyle(): Promise<void> {
  loading ??= load().catch((error) => {
    loading = undefined;
    throw error;
  });
  return loading;
}

function load(): Promise<void> {
  const href = document.querySelector<HTMLMetaElement>('meta[name=screens-style]')?.content ?? '';
  const link = Object.assign(document.createElement('link'), { rel: 'stylesheet', href });
  return new Promise((resolve, reject) => {
    link.addEventListener('load', () => resolve());
    link.addEventListener('error', () => {
      link.remove();
      reject(new Error('Postern cannot be reached.'));
    });
    document.head.append(link);
  });
}
