// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Options tune discovery; the zero value is usable.
type Options struct {
	// Timeout bounds each sequence of driver calls; 20 s by default. A
	// half-seated bridge has been seen to slow calls to minutes (nccl#557).
	Timeout time.Duration
	// Clock is the real one by default.
	Clock clock.Clock
	// Previous is the graph of an earlier run on this boot: its GPUs that the driver no longer lists are
	// kept as unhealthy.
	Previous *nvtopo.Graph
	// XidHold is the least time that an Xid keeps a GPU unhealthy; 5 min by default.
	XidHold time.Duration
	// IgnoreXids are Xids to treat as faults of the application, besides the built-in ones.
	IgnoreXids []uint64
	// KeepLost is how long a GPU that the driver no longer lists stays in the graph as lost; a day by
	// default.
	KeepLost time.Duration
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 20 * time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.XidHold <= 0 {
		o.XidHold = 5 * time.Minute
	}
	if o.KeepLost <= 0 {
		o.KeepLost = 24 * time.Hour
	}
	return o
}

// Discover reads the graph of this machine once. The problems list the parts that the graph lacks; the
// error is for a node of which nothing could be read.
func Discover(ctx context.Context, lib Library, sysfsRoot string, opts Options) (*nvtopo.Graph, []Problem, error) {
	return New(lib, sysfsRoot, opts).Graph(ctx)
}

// Discoverer reads the graph of this machine repeatedly and remembers facts that a single reading cannot
// know: GPUs that were present before, and Xids.
type Discoverer struct {
	lib  Library
	sys  sysfs
	opts Options
	dog  *watchdog

	mu   sync.Mutex           // held for a whole reading
	last *nvtopo.Graph        // the latest good graph; guarded by mu
	seat map[int]string       // driver's index -> UUID at the latest reading; guarded by mu
	gone map[string]time.Time // UUID -> time since which the driver does not list it; guarded by mu
	ups  map[string]linkSet   // UUID -> NVLinks that were up at some reading; guarded by mu

	xids  xidBook
	debts debts

	readable  atomic.Pointer[[]string]         // UUIDs at the latest reading; the watch follows it
	unwatched atomic.Pointer[map[string]error] // UUID -> why its events are not received; reported by readings
	blind     atomic.Pointer[error]            // why no events are received at all, nil when they are; reported by readings
	arrived   chan struct{}                    // receives a token when a reading has a GPU that the one before did not have
}

// New returns a Discoverer of the machine whose sysfs is mounted at sysfsRoot.
func New(lib Library, sysfsRoot string, opts Options) *Discoverer {
	opts = opts.withDefaults()
	d := &Discoverer{lib: lib, sys: sysfs{sysfsRoot}, opts: opts, dog: newWatchdog(opts.Clock, opts.Timeout)}
	d.xids.marks = map[string]map[xidClass]*xidMark{}
	d.gone, d.ups = map[string]time.Time{}, map[string]linkSet{}
	d.arrived = make(chan struct{}, 1)
	d.Remember(opts.Previous)
	return d
}

// Remember sets the graph against which missing GPUs are detected, unless one has been read since the
// Discoverer was made.
func (d *Discoverer) Remember(g *nvtopo.Graph) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil || g == nil {
		return
	}
	d.last = g
	d.seat = make(map[int]string, g.Len())
	for i := range g.GPUs {
		d.seat[g.GPUs[i].Index] = g.GPUs[i].UUID
	}
}

// Graph reads the machine. One reading runs at a time.
func (d *Discoverer) Graph(ctx context.Context) (*nvtopo.Graph, []Problem, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	nodes, err := d.sys.numaNodes()
	if err != nil {
		return nil, nil, fmt.Errorf("read sysfs: %w", err)
	}
	initialise := func() (struct{}, error) { return struct{}{}, d.lib.Init() }
	if _, err := guardLate(ctx, d.dog, "nvmlInit", initialise, func(struct{}) { d.release(ctx) }); err != nil {
		return nil, nil, fmt.Errorf("initialise NVML: %w", err)
	}
	defer d.release(ctx)
	b := &build{nodes: nodes, sys: d.sys, last: d.last, wereUp: d.ups}
	if err := d.readAll(ctx, b); err != nil {
		return nil, nil, err
	}
	d.noteUnwatched(b)
	b.keepMissing(d.missing(b))
	if err := d.readAllPairs(ctx, b); err != nil {
		return nil, nil, err
	}
	b.markXids(&d.xids, d.opts.Clock.Now(), d.opts.XidHold)
	g, err := b.graph()
	if err != nil {
		return nil, b.problems, err
	}
	d.last, d.seat = g, b.seats()
	return g, b.problems, nil
}

// missing returns a function that reports whether a GPU of the last graph has been missing for too long
// to be kept. The time restarts when a GPU that came back goes missing again.
func (d *Discoverer) missing(b *build) func(uuid string) bool {
	for _, r := range b.devs {
		delete(d.gone, r.uuid)
	}
	now := d.opts.Clock.Now()
	return func(uuid string) bool {
		since, known := d.gone[uuid]
		if !known {
			d.gone[uuid] = now
			return false
		}
		if now.Sub(since) < d.opts.KeepLost {
			return false
		}
		delete(d.gone, uuid)
		return true
	}
}

// readSequence returns the name of the watchdog's sequence of reading a device.
func readSequence(index int) string { return fmt.Sprintf("GPU %d", index) }

// readAll reads each device under a watchdog of its own.
func (d *Discoverer) readAll(ctx context.Context, b *build) error {
	n, err := guard(ctx, d.dog, "nvmlDeviceGetCount", d.lib.DeviceCount)
	if err != nil {
		return fmt.Errorf("count GPUs: %w", err)
	}
	for i := range n {
		r, err := guard(ctx, d.dog, readSequence(i), func() (*reading, error) { return readDevice(d.lib, i) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if IsMismatch(err) {
			return fmt.Errorf("read GPU %d: %w", i, err)
		}
		if err != nil {
			b.addUnreadable(i, d.seat[i], err)
			continue
		}
		b.devs = append(b.devs, r)
	}
	b.noteReadings()
	for _, r := range b.devs {
		d.ups[r.uuid] |= r.up()
	}
	return nil
}

// readAllPairs reads each pair once, row by row.
func (d *Discoverer) readAllPairs(ctx context.Context, b *build) error {
	b.pairs = map[[2]int]pairReading{}
	for i, r := range b.devs {
		if !r.askable() {
			continue
		}
		var others []Device
		var at []int
		for j := i + 1; j < len(b.devs); j++ {
			if b.devs[j].askable() {
				others, at = append(others, b.devs[j].handle), append(at, j)
			}
		}
		if len(others) == 0 {
			continue
		}
		row, err := guard(ctx, d.dog, "pairs of "+r.label(), func() ([]pairReading, error) { return readPairs(r.handle, others) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			b.note(r.label(), "links to other GPUs: %v", err)
			continue
		}
		for k, p := range row {
			b.pairs[[2]int{i, at[k]}] = p
		}
	}
	return nil
}

// askable reports whether calls about pairs can be made on the device.
func (r *reading) askable() bool { return r.handle != nil && r.failed == nil }

// IsNoDriver reports whether err means that the machine has no NVIDIA driver,
// as opposed to a driver with a fault.
func IsNoDriver(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == KindNoDriver
}

// IsMismatch reports whether err means that the process has loaded the library of a driver other than the
// kernel's, and must be restarted.
func IsMismatch(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == KindMismatch
}
