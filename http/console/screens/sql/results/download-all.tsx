import { Button } from '../../../parts/button.tsx';
import { formatBytes } from '../../../parts/format.ts';
import type { Call, RunRequest } from '../run/run.ts';
import { downloadAll, downloading } from './download.ts';

export function DownloadAll({ request, call }: { readonly request: RunRequest; readonly call: Call }) {
  const now = downloading.value;
  if (now !== undefined) {
    return (
      <Button icon="stop" title="Cancel the download" onClick={now.cancel}>
        {formatBytes(now.bytes)} …
      </Button>
    );
  }
  return (
    <div class="actions">
      <Button icon="download" onClick={() => void downloadAll(request, call, 'csv')}>
        Download all as CSV
      </Button>
      <Button onClick={() => void downloadAll(request, call, 'json')}>JSON</Button>
    </div>
  );
}
