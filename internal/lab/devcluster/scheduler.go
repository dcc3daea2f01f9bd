// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// schedulerStart bounds the wait for a scheduler to lead and serve.
const schedulerStart = 3 * time.Minute

// SchedulerOptions configures a scheduler.
type SchedulerOptions struct {
	// Binary is the program, for example bin/nvtopo-scheduler.
	Binary string
	// Config is a KubeSchedulerConfiguration in YAML; its
	// clientConnection.kubeconfig is set to the kubeconfig to use. Where it has the shipped
	// debugAddress, a free port takes the place of that port: each pod has a loopback of its
	// own, and here all schedulers share one.
	Config []byte
	// ServiceAccount ("namespace/name") is the scheduler's account; empty means the administrator.
	ServiceAccount string
	// Server is the address at which it finds the API server, for example that of
	// a proxy which injects faults; empty means the API server's own.
	Server string
	// Args are further flags.
	Args []string
	// Log receives its output; nil means the cluster's.
	Log io.Writer
}

// Scheduler is a scheduler running as a child process.
type Scheduler struct {
	opts SchedulerOptions
	args []string
	dir  string
	port int

	mu   sync.Mutex
	proc *process // guarded by mu
}

// Schedulers returns the started schedulers, in the order of their start.
func (c *Cluster) Schedulers() []*Scheduler {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.schedulers)
}

// StartScheduler starts a scheduler and waits until it serves /healthz.
func (c *Cluster) StartScheduler(ctx context.Context, opts SchedulerOptions) (*Scheduler, error) {
	dir, err := os.MkdirTemp(c.dir, "scheduler-")
	if err != nil {
		return nil, fmt.Errorf("make the scheduler's folder: %w", err)
	}
	if opts.Log == nil {
		opts.Log = c.log
	}
	if opts.Binary, err = filepath.Abs(opts.Binary); err != nil {
		return nil, fmt.Errorf("the scheduler's path: %w", err)
	}
	cfg := c.RESTConfig()
	if opts.ServiceAccount != "" {
		namespace, name, ok := strings.Cut(opts.ServiceAccount, "/")
		if !ok {
			return nil, errors.New("the scheduler's service account is not namespace/name: " + opts.ServiceAccount)
		}
		if cfg, err = c.ServiceAccountConfig(ctx, namespace, name); err != nil {
			return nil, err
		}
	}
	if opts.Server != "" {
		cfg.Host = opts.Server
	}
	s := &Scheduler{opts: opts, dir: dir}
	if err := s.writeFiles(cfg); err != nil {
		return nil, err
	}
	c.mu.Lock()
	stopped := c.stopped
	if !stopped {
		c.schedulers = append(c.schedulers, s)
	}
	c.mu.Unlock()
	if stopped {
		return nil, errors.New("start the scheduler: the cluster is stopped")
	}
	if err := s.Restart(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// writeFiles writes the kubeconfig and the configuration and fixes the flags.
func (s *Scheduler) writeFiles(cfg *rest.Config) error {
	kubeconfig := filepath.Join(s.dir, "kubeconfig")
	if err := WriteKubeconfigOf(cfg, kubeconfig); err != nil {
		return err
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	s.port = port
	s.args = []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--cert-dir=" + filepath.Join(s.dir, "pki"),
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
	}
	if len(s.opts.Config) == 0 {
		s.args = append(s.args, "--kubeconfig="+kubeconfig)
	} else {
		config := filepath.Join(s.dir, "config.yaml")
		text, err := onThisHost(s.opts.Config, kubeconfig)
		if err != nil {
			return err
		}
		if err := os.WriteFile(config, text, 0o600); err != nil {
			return fmt.Errorf("write the scheduler's configuration: %w", err)
		}
		s.args = append(s.args, "--config="+config)
	}
	s.args = append(s.args, s.opts.Args...)
	return nil
}

// shippedDebugAddress is the argument debugAddress of the shipped configurations.
const shippedDebugAddress = "127.0.0.1:10270"

// onThisHost sets the parts of a configuration that flags cannot set: the kubeconfig, and a free port in
// place of the shipped debugAddress's.
func onThisHost(config []byte, kubeconfig string) ([]byte, error) {
	var fields map[string]any
	if err := yaml.Unmarshal(config, &fields); err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	if err := unstructured.SetNestedField(fields, kubeconfig, "clientConnection", "kubeconfig"); err != nil {
		return nil, fmt.Errorf("set the scheduler's kubeconfig: %w", err)
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	for _, args := range pluginArgs(fields) {
		if args["debugAddress"] == shippedDebugAddress {
			args["debugAddress"] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
	}
	out, err := yaml.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("write the scheduler's configuration: %w", err)
	}
	return out, nil
}

// pluginArgs returns the arguments of all plugins of a scheduler's configuration, to change them in
// place.
func pluginArgs(config map[string]any) (all []map[string]any) {
	profiles, _ := config["profiles"].([]any)
	for _, p := range profiles {
		profile, _ := p.(map[string]any)
		plugins, _ := profile["pluginConfig"].([]any)
		for _, p := range plugins {
			plugin, _ := p.(map[string]any)
			if args, ok := plugin["args"].(map[string]any); ok {
				all = append(all, args)
			}
		}
	}
	return all
}

// Restart starts the scheduler again after Kill or Stop, or after it ended by
// itself, and waits until it serves /healthz.
func (s *Scheduler) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && s.proc.alive() {
		return errors.New("start the scheduler: it is running")
	}
	proc, err := startProcess("the scheduler", s.opts.Binary, s.args, s.dir, s.opts.Log)
	if err != nil {
		return err
	}
	s.proc = proc
	if err := s.waitHealthy(ctx, proc); err != nil {
		return errors.Join(err, proc.kill())
	}
	return nil
}

func (s *Scheduler) waitHealthy(ctx context.Context, proc *process) error {
	// Its certificate is self-signed in its own folder and nothing secret is sent.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // loopback health check
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	url := "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) + "/healthz"
	err := wait.PollUntilContextTimeout(ctx, pollInterval, schedulerStart, true, func(ctx context.Context) (bool, error) {
		if !proc.alive() {
			return false, fmt.Errorf("it ended: %w", errOrExit(proc.err))
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return false, fmt.Errorf("make a request: %w", err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return false, nil //nolint:nilerr // not listening yet
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	if err != nil {
		return fmt.Errorf("wait for the scheduler: %w", err)
	}
	return nil
}

func errOrExit(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// Alive reports whether the process runs.
func (s *Scheduler) Alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && s.proc.alive()
}

// ExitCode returns the exit status with which the process ended by itself, and -1 while it runs or if a
// signal ended it.
func (s *Scheduler) ExitCode() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.alive() {
		return -1
	}
	if s.proc.err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](s.proc.err); ok {
		return exit.ExitCode()
	}
	return -1
}

// Port returns the loopback port of its HTTPS server.
func (s *Scheduler) Port() int { return s.port }

// PID returns the process ID of the last start, 0 before the first.
func (s *Scheduler) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.pid
}

// Pause stops the process where it stands (SIGSTOP) until Resume.
func (s *Scheduler) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (s *Scheduler) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *Scheduler) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	return s.proc.signal(sig)
}

// Kill ends the scheduler with SIGKILL and waits until it is gone.
func (s *Scheduler) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	return s.proc.kill()
}

// Stop ends the scheduler in an orderly way and waits until it is gone.
func (s *Scheduler) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	return s.proc.stop(ctx)
}
