// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// stopDelay is how long a program may take to end by itself.
const stopDelay = time.Minute

// Program configures a Process. Paths are the node's.
type Program struct {
	Name string // unique on the node; the log is <Name>.log
	Path string
	Args []string
	Env  []string // added to the node's own
}

// Process is a program that runs on the node. Its methods may be used concurrently.
type Process struct {
	node    *Node
	program Program

	mu   sync.Mutex
	pid  int           // as the node sees it, guarded by mu
	done chan struct{} // closed when it ended, guarded by mu
	how  string        // how it ended, read after done
}

// Run starts a program on the node.
func (n *Node) Run(p Program) (*Process, error) {
	proc := &Process{node: n, program: p}
	if err := proc.Restart(); err != nil {
		return nil, err
	}
	return proc, nil
}

// Restart starts the program again after it ended.
func (p *Process) Restart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.node.jail
	answer, err := j.ask(command{
		Op: opStart, Name: p.program.Name, Path: p.program.Path, Args: p.program.Args,
		Env: append(p.node.environment(), p.program.Env...), Dir: p.node.inside, Log: p.node.logPath(p.program.Name),
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", p.program.Name, err)
	}
	p.pid, p.done = answer.PID, make(chan struct{})
	go func(exit <-chan string, done chan<- struct{}) {
		select {
		case p.how = <-exit:
		case <-j.done:
			p.how = "ended with the node"
		}
		close(done)
	}(j.exit(answer.PID), p.done)
	return nil
}

// Name returns the program's name.
func (p *Process) Name() string { return p.program.Name }

// Done returns a channel that is closed when the process that runs now has ended.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Ended returns how the process ended, or "" while it runs.
func (p *Process) Ended() string {
	select {
	case <-p.Done():
		return p.how
	default:
		return ""
	}
}

// Kill ends the process with SIGKILL and waits until it is gone. Its children stay.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Done()
	return nil
}

// Pause stops the process where it is (SIGSTOP) until Resume.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// Stop ends the process with a signal, and kills it if it does not end in time.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopDelay)
	defer cancel()
	select {
	case <-p.Done():
		return nil
	case <-ctx.Done():
		return p.Kill()
	}
}

func (p *Process) signal(sig syscall.Signal) error {
	if _, err := p.node.jail.ask(command{Op: opSignal, Name: p.program.Name, Signal: sig}); err != nil {
		return fmt.Errorf("signal %s: %w", p.program.Name, err)
	}
	return nil
}
