// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// storedVersion is the version of the file that this package writes, and the only one that it reads.
// Unknown fields are ignored; a change in the meaning of existing fields needs the next version.
const storedVersion = 1

// maxStoredBytes limits the size of the file; a container needs some hundred bytes.
const maxStoredBytes = 16 << 20

// storedShelf is the file of one resource.
type storedShelf struct {
	Version  int         `json:"version"`
	Resource string      `json:"resource"`
	Pods     []storedPod `json:"pods"`
}

type storedPod struct {
	UID        types.UID         `json:"uid"`
	Namespace  string            `json:"namespace,omitempty"`
	Name       string            `json:"name,omitempty"`
	Containers []storedContainer `json:"containers"`
}

type storedContainer struct {
	Name string    `json:"name"`
	IDs  []string  `json:"ids"`
	At   time.Time `json:"at"`
}

// path returns the file of a resource. The slash in the resource's name is escaped.
func (s *Steering) path(resource string) string {
	return filepath.Join(s.cfg.StateDir, "served-"+url.PathEscape(resource)+".json")
}

// save writes every shelf that changed.
func (s *Steering) save(logger klog.Logger) {
	if s.cfg.StateDir == "" {
		return
	}
	for _, sh := range s.all() {
		sh.mu.Lock()
		dirty := sh.dirty
		stored := sh.stored()
		sh.dirty = false
		sh.mu.Unlock()
		if !dirty {
			continue
		}
		if err := writeFile(s.path(sh.resource), stored); err != nil {
			logger.Error(err, "Cannot write the file of what was served; kubelet's own record remains", "resource", sh.resource)
			sh.mu.Lock()
			sh.dirty = true
			sh.mu.Unlock()
		}
	}
}

// load reads the file of a resource. A file that cannot be read is renamed: kubelet's record has the same
// devices, unless that was lost as well.
func (s *Steering) load(logger klog.Logger, sh *shelf) {
	if s.cfg.StateDir == "" {
		return
	}
	path := s.path(sh.resource)
	type file struct {
		data []byte
		err  error
	}
	f, ok := within(s.clock, fileWait, func() file {
		data, err := os.ReadFile(path)
		return file{data, err}
	})
	if !ok {
		logger.Info("Reading the file of what was served takes too long; using kubelet's own record", "resource", sh.resource, "path", path)
		return
	}
	err := f.err
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = sh.restore(f.data)
	}
	if err == nil {
		return
	}
	aside := path + ".corrupt"
	logger.Error(err, "Cannot read the file of what was served; renaming it", "resource", sh.resource, "path", path, "aside", aside)
	err, ok = within(s.clock, fileWait, func() error { return os.Rename(path, aside) })
	if err != nil || !ok {
		logger.Error(err, "Cannot rename the file", "path", path, "answered", ok)
	}
}

// stored returns the file's content. It needs mu.
func (s *shelf) stored() storedShelf {
	out := storedShelf{Version: storedVersion, Resource: s.resource, Pods: []storedPod{}}
	for uid, p := range s.served {
		sp := storedPod{UID: uid, Namespace: p.namespace, Name: p.name, Containers: []storedContainer{}}
		for name, d := range p.containers {
			sp.Containers = append(sp.Containers, storedContainer{Name: name, IDs: d.IDs, At: d.At})
		}
		slices.SortFunc(sp.Containers, func(a, b storedContainer) int { return strings.Compare(a.Name, b.Name) })
		out.Pods = append(out.Pods, sp)
	}
	slices.SortFunc(out.Pods, func(a, b storedPod) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// restore reads a file, all of it or nothing, into a shelf that is not used yet. It ignores unknown
// fields: they are a later release's.
func (s *shelf) restore(data []byte) error {
	if len(data) > maxStoredBytes {
		return fmt.Errorf("%d bytes, at most %d are read", len(data), maxStoredBytes)
	}
	var in storedShelf
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&in); err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the object")
	}
	switch {
	case in.Version != storedVersion:
		return fmt.Errorf("version %d, want %d", in.Version, storedVersion)
	case in.Resource != s.resource:
		return fmt.Errorf("resource %q, want %q", in.Resource, s.resource)
	}
	served := map[types.UID]*servedPod{}
	for i, sp := range in.Pods {
		if sp.UID == "" || served[sp.UID] != nil {
			return fmt.Errorf("pods[%d].uid: %q is empty or there twice", i, sp.UID)
		}
		p := &servedPod{namespace: sp.Namespace, name: sp.Name, containers: map[string]podfinder.Served{}}
		for j, c := range sp.Containers {
			ids := question.SetOf(c.IDs).Sorted()
			if _, twice := p.containers[c.Name]; twice || c.Name == "" || len(ids) == 0 || len(ids) != len(c.IDs) || ids[0] == "" {
				return fmt.Errorf("pods[%d].containers[%d]: want a name, there once, and distinct ids", i, j)
			}
			p.containers[c.Name] = podfinder.Served{IDs: ids, At: c.At}
		}
		served[sp.UID] = p
	}
	s.served = served
	return nil
}

// writeFile replaces a file atomically: after a crash either the old or the new one exists.
func writeFile(path string, v any) (err error) {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
