// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// askTimeout bounds one question to a scheduler, which takes 90 seconds at most for its answer.
const askTimeout = 2 * time.Minute

// errElsewhere says that another process may answer: this one does not lead, or answers somebody else.
var errElsewhere = errors.New("it does not answer now")

// fromScheduler asks the processes in turn until one answers, which only the leader does, and has read
// read the answer. body is nil for a GET.
func (a *schedulerAccess) fromScheduler(ctx context.Context, client *http.Client, path string, body []byte, read func(io.Reader) error) error {
	var all []error
	for _, base := range a.schedulers {
		err := askOne(ctx, client, base, path, body, read)
		if !errors.Is(err, errElsewhere) {
			return err
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

func askOne(ctx context.Context, client *http.Client, base, path string, body []byte, read func(io.Reader) error) error {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return usagef("--scheduler %s: want https://host:port, the scheduler's debugAddress", base)
	}
	u.Path = path
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return inputf("scheduler %s: %w", base, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return inputf("scheduler %s: %w", base, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode == http.StatusOK {
		if err := read(resp.Body); err != nil {
			return inputf("scheduler %s: %w", base, err)
		}
		return nil
	}
	words, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return inputf("scheduler %s: %w", base, err)
	}
	said := fmt.Errorf("scheduler %s: %s: %s", base, resp.Status, strings.TrimSpace(string(words)))
	if resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests {
		return inputf("%w: %w", errElsewhere, said)
	}
	return inputf("%w", said)
}
