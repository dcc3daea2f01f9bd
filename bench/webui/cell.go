// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nvtopo/nvtopo/bench/internal/proc"
)

// cell is one measurement.
type cell struct {
	Viewers int `json:"viewers"`
	Changes int `json:"changesPerSecond"`
	// CPU of the server and of all viewers together, in ms per second, user and system.
	ServerCPU  float64 `json:"serverCPUMillis"`
	ViewersCPU float64 `json:"viewersCPUMillis"`
	// Memory of the server, in bytes: resident at the end, and at its peak.
	Resident int64 `json:"resident"`
	Peak     int64 `json:"peak"`
	// Seen is the least number of events that each viewer got, and the bytes that all of them read.
	Seen seen `json:"seen"`
}

func listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", "127.0.0.1:0")
}

// measure runs one cell.
func measure(ctx context.Context, o *options, viewers, changes int) (c cell, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c = cell{Viewers: viewers, Changes: changes}
	api, err := cluster(o.Nodes)
	if err != nil {
		return c, err
	}
	url, err := api.serve(ctx)
	if err != nil {
		return c, err
	}
	server, address, err := startUI(ctx, o.program, url)
	if err != nil {
		return c, err
	}
	defer func() {
		cancel()
		_ = server.Wait() // it was ended
	}()
	var crowd *crowd
	if viewers > 0 {
		if crowd, err = startViewers(ctx, address, viewers); err != nil {
			return c, err
		}
	}
	go api.churn(ctx, changes)
	pids := []int{server.Process.Pid}
	if crowd != nil {
		pids = append(pids, crowd.cmd.Process.Pid)
	}
	if err := c.read(ctx, o, pids); err != nil || crowd == nil {
		return c, err
	}
	c.Seen, err = crowd.end()
	// Once a second is usual; on a busy machine it is less often.
	if least := o.Duration.Seconds() / 4; err == nil && float64(c.Seen.Events) < least {
		err = fmt.Errorf("a viewer was told %d times in %s", c.Seen.Events, o.Duration)
	}
	return c, err
}

// read measures the processes over the time of a cell: the server, and the viewers if there are
// any.
func (c *cell) read(ctx context.Context, o *options, pids []int) error {
	if err := pause(ctx, o.WarmUp); err != nil {
		return err
	}
	begin := time.Now()
	before, err := cpuTimes(pids)
	if err != nil {
		return err
	}
	if err := pause(ctx, o.Duration); err != nil {
		return err
	}
	after, err := cpuTimes(pids)
	if err != nil {
		return err
	}
	perSecond := func(i int) float64 {
		return float64(after[i]-before[i]) / float64(time.Millisecond) / time.Since(begin).Seconds()
	}
	if c.ServerCPU = perSecond(0); len(pids) > 1 {
		c.ViewersCPU = perSecond(1)
	}
	if c.Resident, err = proc.Resident(pids[0]); err != nil {
		return err
	}
	c.Peak, err = proc.Peak(pids[0])
	return err
}

func cpuTimes(pids []int) ([]time.Duration, error) {
	out := make([]time.Duration, len(pids))
	for i, pid := range pids {
		used, err := proc.CPUTime(pid)
		if err != nil {
			return nil, err
		}
		out[i] = used
	}
	return out, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startUI starts nvtopo ui on a cluster, and returns its address once it has read the cluster.
func startUI(ctx context.Context, program, cluster string) (cmd *exec.Cmd, address string, err error) {
	dir, err := os.MkdirTemp("", "bench-webui-")
	if err != nil {
		return nil, "", fmt.Errorf("start nvtopo ui: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // the program has read the files in it
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: cluster}
	kubeconfig.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	kubeconfig.CurrentContext = "c"
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return nil, "", fmt.Errorf("start nvtopo ui: %w", err)
	}
	ln, err := listen(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("start nvtopo ui: %w", err)
	}
	at := ln.Addr().String()
	if err := ln.Close(); err != nil {
		return nil, "", fmt.Errorf("start nvtopo ui: %w", err)
	}
	cmd = exec.CommandContext(ctx, program, "ui", "--kubeconfig", path, "--address", at)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start nvtopo ui: %w", err)
	}
	const limit = time.Minute
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if ready(ctx, "http://"+at) {
			return cmd, "http://" + at, nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			break
		}
	}
	_ = cmd.Process.Kill() // it is of no use
	_ = cmd.Wait()
	return nil, "", fmt.Errorf("nvtopo ui has not read the cluster within %s", limit)
}

func ready(ctx context.Context, address string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	defer func() { _ = answer.Body.Close() }() // only its status is used
	return answer.StatusCode == http.StatusOK
}

// crowd is the process of the viewers.
type crowd struct {
	cmd *exec.Cmd
	in  io.Closer
	out *json.Decoder
}

func startViewers(ctx context.Context, address string, viewers int) (*crowd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the viewers: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, viewersCommand, address, strconv.Itoa(viewers))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the viewers: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the viewers: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the viewers: %w", err)
	}
	c := &crowd{cmd: cmd, in: in, out: json.NewDecoder(out)}
	if err := c.out.Decode(&seen{}); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for the viewers: %w", err), cmd.Wait())
	}
	return c, nil
}

// end stops the viewers and returns their results.
func (c *crowd) end() (s seen, err error) {
	err = errors.Join(c.in.Close(), c.out.Decode(&s))
	return s, errors.Join(err, c.cmd.Wait())
}
