// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Exporter publishes the topology of one node. Create it with New.
type Exporter struct {
	cfg     Config
	src     Source
	api     client
	clock   clock.Clock
	random  func() float64 // in [0, 1)
	metrics *metrics

	mu         sync.Mutex                // held for a whole round
	node       nodeView                  // as last read or written; guarded by mu
	observed   *v1alpha1.NodeGPUTopology // as last read or written, nil when absent; guarded by mu
	readBackAt time.Time                 // when node and observed were read back; zero forces it again; guarded by mu
	good       *v1alpha1.NodeGPUTopology // the last good reading; guarded by mu
	marks      marks                     // of the last good reading; guarded by mu
	own        markSet                   // the marks under nvtopo.dev/; guarded by mu
	aliases    markSet                   // the other marks; guarded by mu
	sent       sent                      // guarded by mu
	told       map[Problem]bool          // problems of the last good reading, already logged; guarded by mu

	// vouched is the UID of the Node while its object agrees with the last reading,
	// else nil. The Leases are renewed only while it is set.
	vouched  atomic.Pointer[types.UID]
	vouching chan struct{} // gets a token when vouched changes from nil to a UID
	finished atomic.Int64  // when the last round ended, in Unix nanoseconds
}

// sent holds the values written since the objects were last read back. Without it, a value that the
// server stores differently (because of a webhook) would be written in every round.
type sent struct {
	spec, status *v1alpha1.NodeGPUTopology
}

// Option changes a default of an Exporter.
type Option func(*Exporter)

// WithClock replaces the real clock.
func WithClock(c clock.Clock) Option { return func(e *Exporter) { e.clock = c } }

// New returns the exporter of cfg.NodeName. It makes no request.
func New(cfg Config, src Source, kube kubernetes.Interface, dyn dynamic.Interface, opts ...Option) (*Exporter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("exporter: %w", err)
	}
	e := &Exporter{
		cfg: cfg, src: src, api: client{node: cfg.NodeName, namespace: cfg.Namespace, kube: kube, dyn: dyn},
		clock: clock.RealClock{}, random: rand.Float64, metrics: newMetrics(), vouching: make(chan struct{}, 1),
		own:     markSet{manager: FieldManager, labels: ownLabels, annotations: ownAnnotations},
		aliases: markSet{manager: AliasFieldManager, labels: aliasLabels, annotations: aliasAnnotations},
	}
	for _, o := range opts {
		o(e)
	}
	return e, nil
}

// Gatherer returns the exporter's metrics.
func (e *Exporter) Gatherer() prometheus.Gatherer { return e.metrics.registry }

// PublishOnce reads the source, brings all published objects up to date and renews the Leases. The error
// lists the failed reads and writes.
func (e *Exporter) PublishOnce(ctx context.Context) error {
	err := e.publish(ctx)
	return errors.Join(err, e.renew(ctx))
}

// publish runs one round without the Leases.
func (e *Exporter) publish(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() { e.finished.Store(e.clock.Now().UnixNano()) }()
	var backErr error
	if e.readBackAt.IsZero() || e.clock.Since(e.readBackAt) >= e.cfg.Resync || e.displaced(ctx) {
		// Once the Node was read, an older view of it is sufficient: the hardware is read during an outage of
		// the API server too.
		if backErr = e.readBack(ctx); backErr != nil && e.node.uid == "" {
			return backErr
		}
	}
	problems, readErr := e.read(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // a stop is not a hardware fault
	}
	writeErr := e.write(ctx, problems, readErr)
	switch {
	case writeErr != nil:
		e.distrust()
	case readErr == nil:
		e.vouch()
	}
	var marksErr error
	if writeErr == nil && e.good != nil {
		marksErr = e.writeMarks(ctx)
	}
	err := errors.Join(backErr, readErr, writeErr, marksErr)
	if err == nil {
		e.metrics.success(e.clock.Now())
	}
	return err
}

// readBack reads the published objects from the API server.
func (e *Exporter) readBack(ctx context.Context) error {
	node, err := e.api.readNode(ctx)
	if err != nil {
		return err
	}
	observed, err := e.api.readTopology(ctx)
	if err != nil {
		return err
	}
	for _, s := range []*markSet{&e.own, &e.aliases} {
		s.cleaned, s.sent = s.cleaned && e.node.uid == node.uid, nil
	}
	e.node, e.observed, e.readBackAt, e.sent = node, observed, e.clock.Now(), sent{}
	if r, ok := e.src.(rememberer); ok && e.good == nil && current(observed, node) && node.bootID != "" {
		// Makes the source report GPUs that disappeared while no exporter ran.
		if graphs, err := observed.Graphs(); err == nil {
			r.Remember(graphs[e.cfg.Resource])
		}
	}
	return nil
}

// displaced reports whether another client deleted the object, created it again or changed its spec since
// it was read or written. Until that is repaired the node has no graph, or a wrong one, which cannot wait
// for the resync. It reads from the API server's cache in every round; a version that is behind only
// costs one more reading.
func (e *Exporter) displaced(ctx context.Context) bool {
	if e.observed == nil {
		return false
	}
	got, err := e.api.glance(ctx)
	switch {
	case unserved(err):
		e.observed = nil // the CRD was deleted, and with it all objects
		e.distrust()
		return true
	case err != nil:
		return false // an outage: no change is known
	}
	return got == nil || got.UID != e.observed.UID || got.Generation != e.observed.Generation
}

// read reads the source. If that fails, the last good reading is kept.
func (e *Exporter) read(ctx context.Context) ([]Problem, error) {
	start := e.clock.Now()
	g, problems, err := e.src.Graph(ctx)
	e.metrics.readDuration.Observe(e.clock.Since(start).Seconds())
	if err != nil {
		e.metrics.readErrors.Inc()
		return problems, fmt.Errorf("read the topology of node %q: %w", e.cfg.NodeName, err)
	}
	before := e.good
	if err := e.keep(g); err != nil {
		e.metrics.readErrors.Inc()
		return problems, err
	}
	problems = append(problems, unknowns(g)...)
	e.metrics.read(g, len(problems))
	e.tell(ctx, problems)
	e.tellHealth(ctx, before)
	return problems, nil
}

func (e *Exporter) keep(g *nvtopo.Graph) error {
	good, err := describe(e.cfg, e.node, g)
	if err != nil {
		return err
	}
	e.good = good
	e.marks = nodeMarks(&e.cfg, g, e.good.Status.Summary)
	return nil
}

// write publishes the differences from the published object.
func (e *Exporter) write(ctx context.Context, problems []Problem, readErr error) error {
	want := e.wanted()
	if want == nil {
		return nil // nothing was ever read, and no object exists to mark
	}
	now := metav1.NewTime(e.clock.Now().Truncate(time.Second)) // the API keeps whole seconds
	conds := []metav1.Condition{ready(problems, readErr)}
	if e.cfg.AssumeEnforced {
		conds = append(conds, metav1.Condition{
			Type: v1alpha1.ConditionEnforced, Status: metav1.ConditionTrue, Reason: reasonSimulated, Message: simulatedStatement,
		})
	}
	withConditions(want, e.observed, now, conds...)
	withSince(want, now, e.observed, e.sent.status)

	// Health is written first: a GPU that appears as unhealthy must never look healthy.
	if e.observed != nil {
		if err := e.writeStatus(ctx, want); err != nil {
			return err
		}
	}
	if e.good != nil {
		if err := e.writeSpec(ctx, want); err != nil {
			return err
		}
		return e.writeStatus(ctx, want)
	}
	return nil
}

// wanted returns the object to publish: the last good reading, or without one the published object,
// because its Ready condition must not stay true.
func (e *Exporter) wanted() *v1alpha1.NodeGPUTopology {
	switch {
	case e.good != nil:
		t := e.good.DeepCopy()
		// A GPU without an entry is healthy: for 8 GPUs the entries took half a kilobyte.
		t.Status.GPUHealth = slices.DeleteFunc(t.Status.GPUHealth, func(h v1alpha1.GPUHealth) bool { return h.Healthy && !h.Degraded })
		// The Node may have been read again since the reading.
		t.Spec.NodeUID, t.Spec.BootID, t.OwnerReferences[0].UID = e.node.uid, e.node.bootID, e.node.uid
		return t
	case e.observed != nil:
		return e.observed.DeepCopy()
	}
	return nil
}

func (e *Exporter) writeSpec(ctx context.Context, want *v1alpha1.NodeGPUTopology) error {
	if sameSpec(want, e.observed) || sameSpec(want, e.sent.spec) {
		return nil
	}
	got, err := e.api.applySpec(ctx, want)
	if e.metrics.wrote(objectSpec, err) != nil {
		return err
	}
	e.observed, e.sent.spec = got, want
	klog.FromContext(ctx).Info("Published the topology", "node", e.cfg.NodeName, "gpus", len(want.Spec.GPUs))
	return nil
}

func (e *Exporter) writeStatus(ctx context.Context, want *v1alpha1.NodeGPUTopology) error {
	if sameStatus(want, e.observed) || sameStatus(want, e.sent.status) {
		return nil
	}
	got, err := e.api.applyStatus(ctx, want)
	if e.metrics.wrote(objectStatus, err) != nil {
		return err
	}
	e.observed, e.sent.status = got, want
	return nil
}

// distrust records that the published objects may differ from the last reading. Lease renewal stops, and
// the next round reads everything back.
func (e *Exporter) distrust() {
	e.readBackAt = time.Time{}
	e.vouched.Store(nil)
}

func (e *Exporter) vouch() {
	uid := e.node.uid
	if e.vouched.Swap(&uid) == nil {
		select {
		case e.vouching <- struct{}{}:
		default: // one token is enough
		}
	}
}

// renew renews the node's Leases if the published object agrees with the last reading.
func (e *Exporter) renew(ctx context.Context) error {
	uid := e.vouched.Load()
	if uid == nil {
		return nil
	}
	names := []string{LeasePrefix + e.cfg.NodeName}
	if e.cfg.AssumeEnforced {
		names = append(names, AgentLeasePrefix+e.cfg.NodeName)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, e.metrics.wrote(objectLease, e.api.applyLease(ctx, name, *uid, e.clock.Now())))
	}
	return errors.Join(errs...)
}
