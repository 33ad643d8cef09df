import { signal } from '@preact/signals';

/** The download that goes on, also while another screen is shown. */
export const currentDownload = signal<{ readonly bytes: number; readonly cancel: () => void } | undefined>(undefined);
