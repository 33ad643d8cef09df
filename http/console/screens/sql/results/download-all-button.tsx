import { Button } from '../../../parts/button.tsx';
import type { Call, RunRequest } from '../run/run-request-and-result.ts';
import { currentDownload } from './current-download.ts';
import { downloadAll } from './download.ts';

export function DownloadAllButton({ request, call }: { readonly request: RunRequest; readonly call: Call }) {
  return (
    <div class="actions">
      <Button icon="download" isBusy={currentDownload.value !== undefined} onClick={() => void downloadAll(request, call, 'csv')}>
        Download all as CSV
      </Button>
      <Button onClick={() => void downloadAll(request, call, 'json')}>JSON</Button>
    </div>
  );
}
