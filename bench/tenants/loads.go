// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	// senders is the number of concurrent requests of the other tenant.
	senders = 32
	// Parts of an impossible pod: as many annotations as a pod may have, of the greatest total length
	// that the API server admits, and as many containers as policies check.
	annotations, annotationBytes, containers = 512, 250 << 10, 128
)

// impossible returns a pod that no node has room for: its 8 GPUs require better links than any node has.
func (c *cluster) impossible(i int, scheduler string) *v1.Pod {
	eight := v1.ResourceList{v1alpha1.DefaultResource: resource.MustParse("8")}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("impossible-%05d", i), Annotations: map[string]string{podrequest.MinLinkKey: "NV64"}},
		Spec: v1.PodSpec{
			SchedulerName: scheduler, TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []v1.Container{{Name: "main", Image: "i", Resources: v1.ResourceRequirements{Limits: eight}}},
		},
	}
	for n := range annotations - 1 {
		p.Annotations[fmt.Sprintf("example.com/x%03d", n)] = strings.Repeat("v", annotationBytes/annotations-16)
	}
	for n := range containers - 1 {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprintf("c%d", n), Image: "i"})
	}
	return p
}

// makeImpossible creates all of them at once, for a scheduler of that name.
func (c *cluster) makeImpossible(ctx context.Context, n int, scheduler string, made *atomic.Int64) error {
	kube, err := kubernetes.NewForConfig(c.tenant)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(senders)
	for i := range n {
		g.Go(func() error {
			if _, err := kube.CoreV1().Pods(other).Create(ctx, c.impossible(i, scheduler), metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("make an impossible pod: %w", err)
			}
			made.Add(1)
			return nil
		})
	}
	return g.Wait() //nolint:wrapcheck // wrapped above
}

func (c *cluster) removeImpossible(ctx context.Context) error {
	err := c.kube.CoreV1().Pods(other).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("delete the impossible pods: %w", err)
	}
	return nil
}

// comingPods creates impossible pods while others are measured. The next row removes them.
func comingPods(ctx context.Context, c *cluster, o *options) (func() (string, error), error) {
	return coming(ctx, c, o, c.scheduler)
}

// foreignPods creates the same pods for a scheduler that does not run, to measure their cost for the API
// server and their mere existence for the scheduler. It removes them.
func foreignPods(ctx context.Context, c *cluster, o *options) (func() (string, error), error) {
	stop, err := coming(ctx, c, o, "another")
	if err != nil {
		return nil, err
	}
	return func() (string, error) {
		words, err := stop()
		return words, errors.Join(err, c.removeImpossible(ctx))
	}, nil
}

func coming(ctx context.Context, c *cluster, o *options, scheduler string) (func() (string, error), error) {
	var made atomic.Int64
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		err := c.makeImpossible(ctx, o.Impossible, scheduler, &made)
		if ctx.Err() != nil {
			err = nil
		}
		ended <- err
	}()
	return func() (string, error) {
		words := fmt.Sprintf("%d were made meanwhile", made.Load())
		cancel()
		return words, <-ended
	}, nil
}

// waitingPods makes all impossible pods wait during the row.
func waitingPods(ctx context.Context, c *cluster, o *options) (func() (string, error), error) {
	if err := c.removeImpossible(ctx); err != nil {
		return nil, err
	}
	var made atomic.Int64
	if err := c.makeImpossible(ctx, o.Impossible, c.scheduler, &made); err != nil {
		return nil, err
	}
	return func() (string, error) { return fmt.Sprintf("%d wait", made.Load()), c.removeImpossible(ctx) }, nil
}

// client trusts our servers on this machine, and sends the tenant's token.
func (c *cluster) client() *http.Client {
	return &http.Client{Transport: bearer{c.tenant.BearerToken, &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // loopback, a child of ours
	}}}
}

type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// streams makes the tenant follow the web view with as many streams as allowed.
func streams(ctx context.Context, c *cluster, o *options) (func() (string, error), error) {
	ctx, cancel := context.WithCancel(ctx)
	address, wait, err := c.startUI(ctx, o)
	if err != nil {
		cancel()
		return nil, err
	}
	var all sync.WaitGroup
	var read, ended atomic.Int64
	for range o.Streams {
		all.Go(func() {
			if err := follow(ctx, c.client(), address+"/api/v1/stream", &read); ctx.Err() == nil && err != nil {
				ended.Add(1)
			}
		})
	}
	return func() (string, error) {
		words := fmt.Sprintf("%d streams, %d KiB read", o.Streams-int(ended.Load()), read.Load()>>10)
		cancel()
		all.Wait()
		wait()
		if ended.Load() > 0 || read.Load() == 0 {
			return words, fmt.Errorf("%d of %d streams ended before the row", ended.Load(), o.Streams)
		}
		return words, nil
	}, nil
}

func follow(ctx context.Context, client *http.Client, url string, read *atomic.Int64) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	answer, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("follow: %s", answer.Status)
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := answer.Body.Read(buf)
		read.Add(int64(n))
		if err != nil {
			return fmt.Errorf("follow: %w", err)
		}
	}
}

// startUI starts the web view with token authentication, and returns when it has read the cluster.
func (c *cluster) startUI(ctx context.Context, o *options) (address string, wait func(), err error) {
	port, err := devcluster.FreePort()
	if err != nil {
		return "", nil, fmt.Errorf("start nvtopo ui: %w", err)
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	cmd := exec.CommandContext(ctx, filepath.Join(o.bin, "nvtopo"), "ui", "--kubeconfig", c.Kubeconfig(), "--address", at, "--require-token")
	var words bytes.Buffer
	cmd.Stderr, cmd.Env = &words, os.Environ()
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start nvtopo ui: %w", err)
	}
	wait = func() { _ = cmd.Wait() } // it was ended
	client := c.client()
	for end := time.Now().Add(bound); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+at+"/readyz", http.NoBody)
		if err != nil {
			return "", nil, fmt.Errorf("start nvtopo ui: %w", err)
		}
		answer, err := client.Do(r)
		if err != nil {
			continue // it does not listen yet
		}
		_ = answer.Body.Close() // only its status is used
		if answer.StatusCode == http.StatusOK {
			return "https://" + at, wait, nil
		}
	}
	_ = cmd.Process.Kill() // it is of no use
	wait()
	return "", nil, fmt.Errorf("nvtopo ui has not read the cluster within %s: %s", bound, words.String())
}

// question is a what-if question about the greatest number of pods.
const question = `{apiVersion: batch/v1, kind: Job, metadata: {name: asked}, spec: {parallelism: 1000, completions: 1000, template: {spec: {` +
	`schedulerName: %s, restartPolicy: Never, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}}}`

// questions makes the tenant send questions without end. The scheduler answers one at a time and refuses
// others.
func questions(ctx context.Context, c *cluster, o *options) (func() (string, error), error) {
	asked, err := whatif.ReadAsked(fmt.Appendf(nil, question, c.scheduler), other)
	if err != nil {
		return nil, fmt.Errorf("read the question: %w", err)
	}
	body, err := asked.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode the question: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	var answered, refused atomic.Int64
	var mu sync.Mutex
	var last error
	for range o.Callers {
		all.Go(func() {
			client := c.client()
			for ctx.Err() == nil {
				switch status, err := ask(ctx, client, "https://"+c.debug+whatif.Path, body); {
				case ctx.Err() != nil:
				case status == http.StatusOK:
					answered.Add(1)
				case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
					refused.Add(1)
				default:
					mu.Lock()
					last = errors.Join(err, fmt.Errorf("a question: status %d", status))
					mu.Unlock()
					return
				}
			}
		})
	}
	return func() (string, error) {
		words := fmt.Sprintf("%d answered, %d refused", answered.Load(), refused.Load())
		cancel()
		all.Wait()
		return words, last
	}, nil
}

func ask(ctx context.Context, client *http.Client, url string, body []byte) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("ask: %w", err)
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, fmt.Errorf("ask: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	_, err = io.Copy(io.Discard, answer.Body)
	if err != nil {
		return 0, fmt.Errorf("ask: %w", err)
	}
	return answer.StatusCode, nil
}
