// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/fieldpath"
)

const (
	// SnapshotKind is in a snapshot's first line.
	SnapshotKind = "nvtopo-snapshot"
	// SnapshotVersion is the version that this release writes and reads.
	SnapshotVersion = 1

	// maxLine bounds one object: etcd takes 1.5 MiB.
	maxLine = 4 << 20
	// maxObjects bounds their number: 5000 nodes of 110 pods, and as much again of the rest.
	maxObjects = 1_500_000
)

// Header is the first line of a snapshot.
type Header struct {
	Kind    string    `json:"kind"`
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	// Scheduler is the process that made it, as its debug endpoint calls itself.
	Scheduler string `json:"scheduler,omitempty"`
	// Config is the KubeSchedulerConfiguration of the process, as it read it.
	Config string `json:"config"`
	// FeatureGates is its flag --feature-gates.
	FeatureGates string `json:"featureGates,omitempty"`
}

// Object is one object of a snapshot.
type Object struct {
	Kind                                  *Kind
	Namespace, Name, UID, ResourceVersion string
	Raw                                   json.RawMessage // with apiVersion and kind
}

// String is the object as errors call it.
func (o *Object) String() string {
	if o.Kind.Namespaced {
		return o.Kind.Kind + " " + o.Namespace + "/" + o.Name
	}
	return o.Kind.Kind + " " + o.Name
}

// Snapshot is what a scheduler reads, as of one moment. Leases in it are those that counted then.
// A pod that a choice was made for shows it, as if it were bound already.
type Snapshot struct {
	Header
	Objects []Object
}

// end is the last line of a snapshot, by which a reader knows that it has all.
type end struct {
	Objects *int `json:"objects"` // how many there are
}

// Writer writes a snapshot, one JSON document a line.
type Writer struct {
	out     *bufio.Writer
	objects int
}

// NewWriter writes the header.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	h.Kind, h.Version = SnapshotKind, SnapshotVersion
	out := &Writer{out: bufio.NewWriterSize(w, 1<<16)}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("writing the snapshot's header: %w", err)
	}
	return out, out.line(text)
}

// Add writes an object. Its kind is added to what it says of itself: typed objects say none.
func (w *Writer) Add(kind *Kind, obj any) error {
	text, err := json.Marshal(obj)
	if err != nil {
		return fmt.Errorf("writing a %s: %w", kind.Kind, err)
	}
	w.objects++
	return w.line(WithKind(kind, text))
}

// AddRaw writes an object as it stands.
func (w *Writer) AddRaw(o *Object) error {
	w.objects++
	return w.line(o.Raw)
}

func (w *Writer) line(text []byte) error {
	if _, err := w.out.Write(text); err != nil {
		return err
	}
	return w.out.WriteByte('\n')
}

// Close writes the last line.
func (w *Writer) Close() error {
	text, err := json.Marshal(end{&w.objects})
	if err != nil {
		return fmt.Errorf("writing the snapshot's end: %w", err)
	}
	if err := w.line(text); err != nil {
		return err
	}
	return w.out.Flush()
}

// WithKind adds apiVersion and kind to the JSON of a typed object, which has them first or not at
// all.
func WithKind(kind *Kind, text []byte) []byte {
	if bytes.HasPrefix(text, []byte(`{"kind":`)) {
		return text
	}
	out := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,`, kind.APIVersion, kind.Kind)
	return append(out, bytes.TrimPrefix(text, []byte("{"))...)
}

// Read reads a snapshot. Objects of other kinds, without a name or twice are errors, which name
// the line; so is a snapshot without its end.
func Read(r io.Reader) (*Snapshot, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<16), maxLine)
	s := &Snapshot{}
	seen, ended := map[string]bool{}, false
	n := 0
	for lines.Scan() {
		n++
		err := error(nil)
		switch text := bytes.TrimSpace(lines.Bytes()); {
		case n == 1:
			err = s.readHeader(text)
		case ended:
			err = errors.New("the snapshot goes on behind its end")
		case bytes.HasPrefix(text, []byte(`{"objects":`)):
			ended, err = true, s.readEnd(text)
		default:
			err = s.add(text, seen)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	switch err := lines.Err(); {
	case err != nil:
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	case !ended:
		return nil, fmt.Errorf("line %d: the snapshot ends in its middle", n+1)
	}
	return s, nil
}

// Add adds a typed object, as a Writer does.
func (s *Snapshot) Add(kind *Kind, obj any) error {
	text, err := json.Marshal(Bare(obj))
	if err != nil {
		return fmt.Errorf("adding a %s: %w", kind.Kind, err)
	}
	o, err := readObject(WithKind(kind, text))
	if err != nil {
		return err
	}
	s.Objects = append(s.Objects, *o)
	return nil
}

// Write writes the snapshot.
func (s *Snapshot) Write(out io.Writer) error {
	w, err := NewWriter(out, s.Header)
	if err != nil {
		return err
	}
	for i := range s.Objects {
		if err := w.AddRaw(&s.Objects[i]); err != nil {
			return fmt.Errorf("writing %s: %w", &s.Objects[i], err)
		}
	}
	return w.Close()
}

func (s *Snapshot) add(text []byte, seen map[string]bool) error {
	o, err := readObject(text)
	if err != nil {
		return err
	}
	name := o.String()
	if seen[name] {
		return fmt.Errorf("%s is there twice", name)
	}
	if len(seen) == maxObjects {
		return fmt.Errorf("a snapshot has at most %d objects", maxObjects)
	}
	seen[name] = true
	s.Objects = append(s.Objects, *o)
	return nil
}

func (s *Snapshot) readEnd(text []byte) error {
	var e end
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("want the end of a snapshot, in JSON: %w", err)
	}
	if e.Objects == nil || *e.Objects != len(s.Objects) {
		return fmt.Errorf("objects: the snapshot has %d", len(s.Objects))
	}
	return nil
}

func (s *Snapshot) readHeader(text []byte) error {
	if err := fieldpath.Decode(text, &s.Header); err != nil {
		return fmt.Errorf("want the header of a snapshot, in JSON: %w", err)
	}
	switch {
	case s.Kind != SnapshotKind:
		return fmt.Errorf("kind %q: want %q, the file of `nvtopo snapshot save`", s.Kind, SnapshotKind)
	case s.Version != SnapshotVersion:
		return fmt.Errorf("version %d: this program reads %d", s.Version, SnapshotVersion)
	case s.At.IsZero():
		return errors.New("at: missing")
	case s.Config == "":
		return errors.New("config: missing")
	}
	return nil
}

// named is what every object says of itself.
type named struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace       string    `json:"namespace"`
		Name            string    `json:"name"`
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
	} `json:"metadata"`
}

func readObject(text []byte) (*Object, error) {
	var m named
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("want an object, in JSON: %w", err)
	}
	kind := KindOf(m.APIVersion, m.Kind)
	if kind == nil {
		return nil, fmt.Errorf("apiVersion %q, kind %q: no kind of a snapshot", m.APIVersion, m.Kind)
	}
	o := &Object{
		Kind: kind, Namespace: m.Metadata.Namespace, Name: m.Metadata.Name, UID: string(m.Metadata.UID),
		ResourceVersion: m.Metadata.ResourceVersion, Raw: bytes.Clone(text),
	}
	if o.Name == "" {
		return nil, fmt.Errorf("%s: metadata.name: missing", kind.Kind)
	}
	if kind.Namespaced != (o.Namespace != "") {
		return nil, fmt.Errorf("%s: metadata.namespace %q: namespaced is %t", o, o.Namespace, kind.Namespaced)
	}
	return o, nil
}
