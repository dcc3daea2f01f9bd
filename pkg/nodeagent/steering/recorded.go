// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/nodeagent/kubelet"
)

// byPod is pod -> container -> sorted ids, of one resource.
type byPod = map[types.UID]map[string][]string

// recordFile reads kubelet's checkpoint again whenever it was replaced.
type recordFile struct {
	path string

	mu         sync.Mutex
	info       fs.FileInfo      // of the file that was read; guarded by mu
	byResource map[string]byPod // nil: cannot be read; guarded by mu
}

// of returns what the checkpoint records of a resource, read only; nil if it
// cannot be read. Kubelet writes it before it asks for the next container, so
// then it is complete.
//
// A file that is not there counts as one that cannot be read: kubelet writes one
// as soon as a plugin has told it devices, so the path must be wrong.
func (r *recordFile) of(logger klog.Logger, resource string) byPod {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(r.path)
	if err != nil {
		if r.byResource != nil || !errors.Is(err, fs.ErrNotExist) {
			logger.Error(err, "Cannot find kubelet's checkpoint")
		}
		r.byResource, r.info = nil, nil
		return nil
	}
	// Kubelet replaces the file by another, and a time alone does not tell them
	// apart: it counts in ticks of some milliseconds.
	if r.info == nil || !os.SameFile(info, r.info) || info.Size() != r.info.Size() || !info.ModTime().Equal(r.info.ModTime()) {
		r.info = info
		r.byResource = r.read(logger)
	}
	if r.byResource == nil {
		return nil
	}
	if pods, ok := r.byResource[resource]; ok {
		return pods
	}
	return byPod{}
}

func (r *recordFile) read(logger klog.Logger) map[string]byPod {
	records, err := kubelet.ReadCheckpoint(r.path)
	if err != nil {
		logger.Error(err, "Cannot read kubelet's checkpoint")
		return nil
	}
	out := map[string]byPod{}
	for i := range records {
		rec := &records[i]
		pods := out[rec.Resource]
		if pods == nil {
			pods = byPod{}
			out[rec.Resource] = pods
		}
		if pods[rec.PodUID] == nil {
			pods[rec.PodUID] = map[string][]string{}
		}
		pods[rec.PodUID][rec.Container] = rec.IDs
	}
	return out
}
