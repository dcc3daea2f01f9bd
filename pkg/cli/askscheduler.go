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

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/cli/leaderclient"
)

// askTimeout bounds one request to a scheduler, which takes 90 seconds at most for its response.
const askTimeout = 2 * time.Minute

// errElsewhere means that another process may respond: this one does not lead, or serves another request.
var errElsewhere = errors.New("it does not answer now")

// ask sends a request to the schedulers of the flags, or else to the one that leads according to its
// published profiles, and passes the response to read. config is of the API server; body is nil for a GET.
func (a *schedulerAccess) ask(ctx context.Context, config *rest.Config, path string, body []byte, read func(io.Reader) error) error {
	if len(a.schedulers) == 0 {
		return askLeader(ctx, config, path, body, read)
	}
	client, err := a.client(config, askTimeout)
	if err != nil {
		return err
	}
	return a.fromScheduler(ctx, client, path, body, read)
}

// askLeader sends a request to the scheduler that leads according to its published profiles.
func askLeader(ctx context.Context, config *rest.Config, path string, body []byte, read func(io.Reader) error) error {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return inputf("kubeconfig: %w", err)
	}
	leader, err := leaderclient.Find(ctx, kube, release.Namespace, time.Now())
	if err != nil {
		return inputf("cluster %s: %w", config.Host, err)
	}
	connection, err := leader.Connect(ctx, kube, config, askTimeout)
	if err != nil {
		return inputf("cluster %s: %w", config.Host, err)
	}
	defer connection.Close()
	return question{connection.Client, leader.Process, connection.URL + path, body}.put(ctx, read)
}

// fromScheduler tries the processes in turn until one responds, which only the leader does, and passes the
// response to read. body is nil for a GET.
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
	return question{client, base, u.String(), body}.put(ctx, read)
}

// question is one request to a scheduler; body is nil for a GET.
type question struct {
	client    *http.Client
	scheduler string // in errors
	url       string
	body      []byte
}

// put sends the request, and passes the response to read.
func (q question) put(ctx context.Context, read func(io.Reader) error) error {
	method := http.MethodGet
	if q.body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, q.url, bytes.NewReader(q.body))
	if err != nil {
		return inputf("scheduler %s: %w", q.scheduler, err)
	}
	resp, err := q.client.Do(req)
	if err != nil {
		return inputf("scheduler %s: %w", q.scheduler, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode == http.StatusOK {
		if err := read(resp.Body); err != nil {
			return inputf("scheduler %s: %w", q.scheduler, err)
		}
		return nil
	}
	words, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return inputf("scheduler %s: %w", q.scheduler, err)
	}
	said := fmt.Errorf("scheduler %s: %s: %s", q.scheduler, resp.Status, strings.TrimSpace(string(words)))
	if resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests {
		return inputf("%w: %w", errElsewhere, said)
	}
	return inputf("%w", said)
}
