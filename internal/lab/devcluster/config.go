// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// maxSocketPath is the longest path a unix socket may have on Linux, less the
// terminating zero (unix(7), sockaddr_un).
const maxSocketPath = 107

// Config configures a Cluster. The zero value is a control plane without controllers and kwok in a
// temporary folder.
type Config struct {
	// Dir is the folder that everything is kept in. When empty, a temporary one is created and Stop removes
	// it; a given folder is left in place.
	Dir string
	// Controllers runs the daemonset, deployment, disruption, garbage-collector, job,
	// namespace, replicaset, statefulset and taint-eviction controllers.
	Controllers bool
	// ServiceAccounts gives pods tokens as a real cluster does: by the admission plugin that mounts
	// them, and the controllers that make each namespace's default account and its copy of the
	// cluster's CA. Without it the API server takes pods that have no account yet.
	ServiceAccounts bool
	// KwokBinary is the path of the kwok program, which brings pods to Running
	// and lets deleted ones go. Without it, bound pods stay Pending.
	KwokBinary string
	// Kueue, unless nil, runs Kueue, which lets jobs in the namespaces of tenants
	// (labelled pool.nvtopo.dev/tenant) start when they have quota.
	Kueue *KueueOptions
	// AuditLog makes the API server write one JSON line for each finished
	// request to audit.log in the folder.
	AuditLog bool
	// AnonymousAuth lets requests without credentials through to authorisation.
	AnonymousAuth bool
	// APIServerArgs are further kube-apiserver flags, applied last.
	APIServerArgs []string
	// Log receives the output of the child processes and etcd; nil discards it. The in-process API server
	// and controllers log through klog, which the program must direct, because it is one per process.
	Log io.Writer
}

// prepare creates the folder and returns its absolute path; owned means that Stop removes it.
func (c *Config) prepare() (dir string, owned bool, err error) {
	if owned = c.Dir == ""; owned {
		dir, err = os.MkdirTemp("", "nvtopo-devcluster-")
	} else if dir, err = filepath.Abs(c.Dir); err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", false, fmt.Errorf("make the cluster's folder: %w", err)
	}
	if len(filepath.Join(dir, etcdClientSocket)) > maxSocketPath {
		err = errors.New("the cluster's folder has too long a path for a unix socket: " + dir)
		if owned {
			err = errors.Join(err, os.Remove(dir))
		}
		return "", false, err
	}
	return dir, owned, nil
}

// log returns where to print to; safe for several writers at a time.
func (c *Config) log() io.Writer {
	if c.Log == nil {
		return io.Discard
	}
	return &lockedWriter{w: c.Log}
}

// lockedWriter lets several processes' output share one writer.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
