// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

const (
	// controlPlaneCommand is the first argument of the child process that serves.
	controlPlaneCommand = "control-plane"
	// controlPlaneStop is more than devcluster waits for the API server's last requests.
	controlPlaneStop = 40 * time.Second
)

// apiserverArgs speed up the work between cells; within a cell they have no effect.
var apiserverArgs = []string{"--delete-collection-workers=16"}

// serveControlPlane runs etcd and kube-apiserver with the project's manifests until
// stdin ends, which also happens when the parent dies. It prints the path of the
// administrator's kubeconfig. args are further flags of kube-apiserver.
func serveControlPlane(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// When the parent dies, its end of our output is closed, and a write there must not
	// kill us before everything is removed.
	signal.Ignore(syscall.SIGPIPE)
	// An end of input during the start has to stop it too.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, stdin) // an error ends it as well
	}()
	err := quietLogs("WARNING")
	if err == nil {
		err = serve(ctx, slices.Concat(apiserverArgs, args), stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := devcluster.Start(ctx, devcluster.Config{Log: stderr, APIServerArgs: args})
	if err != nil {
		return fmt.Errorf("start the control plane: %w", err)
	}
	if err := c.InstallManifests(ctx); err != nil {
		return errors.Join(fmt.Errorf("install the manifests: %w", err), c.Stop()) //nolint:contextcheck // it has to end although ctx may be over
	}
	fmt.Fprintln(stdout, c.Kubeconfig())
	<-ctx.Done()
	return c.Stop() //nolint:contextcheck // likewise
}

// quietLogs drops logs below a severity in this process: an API server logs a lot, a
// client each interrupted request.
func quietLogs(severity string) error {
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	klog.SetOutput(io.Discard)
	if err := errors.Join(fs.Set("logtostderr", "false"), fs.Set("stderrthreshold", severity)); err != nil {
		return fmt.Errorf("direct the logs: %w", err)
	}
	return nil
}

// controlPlane is etcd and kube-apiserver in a child process.
type controlPlane struct {
	*devcluster.Cluster // schedulers started here are children of this process
	pid                 int
	dir                 string // the child's, which it removes itself unless it is killed
	cmd                 *exec.Cmd
	stdin               io.Closer
	done                chan error // has one value when the child has been reaped
}

// startControlPlane starts the child and waits until it serves.
func startControlPlane(ctx context.Context, log io.Writer, args ...string) (_ *controlPlane, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, slices.Concat([]string{controlPlaneCommand}, args)...)
	cmd.Stderr = log
	// A Ctrl-C in the terminal must reach only us: the child ends after its clients.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, fmt.Errorf("make the control plane's pipes: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	p := &controlPlane{pid: cmd.Process.Pid, cmd: cmd, stdin: stdin, done: make(chan error, 1)}
	printed := make(chan string, 1)
	go func() {
		in := bufio.NewReader(stdout)
		line, _ := in.ReadString('\n') // empty where the child ended before
		printed <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, in) // ends with the child
		p.done <- cmd.Wait()
	}()
	defer func() { //nolint:contextcheck // what was started has to end although ctx may be over
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	var kubeconfig string
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the control plane: %w", ctx.Err())
	case kubeconfig = <-printed:
	}
	if kubeconfig == "" {
		return nil, errors.New("the control plane printed no kubeconfig")
	}
	p.dir = filepath.Dir(kubeconfig)
	admin, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the control plane's kubeconfig: %w", err)
	}
	admin.QPS = -1 // the load generator must never be the limit
	// In the child's folder, which is removed also when this process is killed.
	own := devcluster.Config{Log: log, Dir: filepath.Join(p.dir, "clients")}
	if p.Cluster, err = devcluster.Attach(ctx, admin, own); err != nil {
		return nil, fmt.Errorf("attach to the control plane: %w", err)
	}
	return p, nil
}

// stop ends the schedulers and then the child.
func (p *controlPlane) stop() error {
	var errs []error
	if p.Cluster != nil {
		errs = append(errs, p.Stop())
	}
	if err := p.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) { // closed: the child ended by itself
		errs = append(errs, err)
	}
	select {
	case err := <-p.done:
		if err != nil {
			errs = append(errs, fmt.Errorf("the control plane: %w", err))
		}
	case <-time.After(controlPlaneStop):
		errs = append(errs, errors.New("the control plane did not end in time and was killed"), p.cmd.Process.Kill())
		<-p.done
		if p.dir != "" {
			errs = append(errs, os.RemoveAll(p.dir))
		}
	}
	return errors.Join(errs...)
}
