// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// maxDiagnosis bounds the size of a scheduler's state; 5000 nodes of 8 GPUs take some
// 10 MB.
const maxDiagnosis = 256 << 20

// ReadScheduler reads the state of a scheduler process. base is its debug address as
// https://host:port; client has the credentials and certificates.
func ReadScheduler(ctx context.Context, client *http.Client, base string) (*diagnosis.State, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("scheduler %s: want https://host:port, the scheduler's debugAddress", base)
	}
	u.Path = diagnosis.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("scheduler %s: %w", base, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("scheduler %s: %w", base, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDiagnosis+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("scheduler %s: %w", base, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("scheduler %s: %s: %.200s", base, resp.Status, strings.TrimSpace(string(body)))
	case len(body) > maxDiagnosis:
		return nil, fmt.Errorf("scheduler %s: its state is longer than %d bytes", base, maxDiagnosis)
	}
	d, err := diagnosis.ParseState(body)
	if err != nil {
		return nil, fmt.Errorf("scheduler %s: %w", base, err)
	}
	return d, nil
}
