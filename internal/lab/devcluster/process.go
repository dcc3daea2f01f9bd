// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// killDelay is how long a child may take to end by itself. A killed child has not tidied up, for example
// released its Lease, so it is long enough for a busy machine.
const killDelay = time.Minute

// lastWords is how long the output of a child that has ended is read, which its own children may
// keep open.
const lastWords = 10 * time.Second

// process is a child in its own process group, which dies with this process.
type process struct {
	name string
	pid  int
	done chan struct{} // closed when the child has been reaped
	err  error         // how it ended; read after done
}

// startProcess starts a child. Its home is the cluster's folder, so that it writes nowhere else, and it
// has its own process group, so that a Ctrl-C in the terminal reaches only this process and children end
// in its order.
//
// The kernel sends the parent-death signal when the *thread* that created the child ends (prctl(2),
// PR_SET_PDEATHSIG), so one goroutine keeps its thread from fork to reap.
func startProcess(name, binary string, args []string, dir string, log io.Writer) (*process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "KUBECONFIG=")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = lastWords
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	p := &process{name: name, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// alive reports whether the child has not been reaped yet.
func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig to the child's group, if it still runs. A reaped child's process ID may already belong
// to another process.
func (p *process) signal(sig syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(-p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// kill ends the child at once and waits until it is gone.
func (p *process) kill() error {
	err := p.signal(syscall.SIGKILL)
	<-p.done
	return err
}

// stop ends the child with a signal, and kills it if it does not end in time.
func (p *process) stop(ctx context.Context) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, killDelay)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return p.kill()
	}
}
