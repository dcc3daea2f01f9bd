// SPDX-License-Identifier: Apache-2.0

package clusterobjects

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	// pageSize is the maximum number of objects in one answer of the API server.
	pageSize = 500
	// tries is how often Read starts if its resource version expires during the read.
	tries = 3
)

// Request selects the objects that Read reads from a cluster.
type Request struct {
	// Needed are the kinds without which there is no answer: it is an error if the API server refuses one.
	// A custom kind that is not installed has no objects.
	Needed []Kind
	// More returns further needed kinds, derived from the objects read so far; may be nil.
	More func(*Objects) []Kind
	// Optional kinds are treated as empty where they are not installed or may not be read.
	Optional []Kind
	// Namespaces maps a kind to the only namespace that is read; other kinds are read in all.
	Namespaces map[Kind]string
	Clock      clock.PassiveClock
}

// Read reads a cluster as it was at one moment: first the first kind of Needed, then everything else at
// the resource version of that list. The API server keeps such versions for some minutes. If a resource
// has its own etcd, versions are not comparable, and its newest state is read.
func Read(ctx context.Context, kube kubernetes.Interface, r *Request) (*Objects, error) {
	for try := 1; ; try++ {
		o, err := r.read(ctx, kube.Discovery().RESTClient())
		if err == nil || try == tries || !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return o, err
		}
	}
}

func (r *Request) read(ctx context.Context, client rest.Interface) (*Objects, error) {
	o := &Objects{Now: r.Clock.Now(), Unread: map[Kind]error{}}
	var at metav1.ListOptions // the moment, once it is known
	all := func(kinds []Kind, optional bool) error {
		for _, k := range kinds {
			version, err := r.list(ctx, client, k, at, o)
			switch {
			case err == nil:
				o.LeasesKnown = o.LeasesKnown || k == Leases && r.Namespaces[k] != ""
				if at.ResourceVersion == "" {
					at = metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
				}
			case apierrors.IsNotFound(err) && (optional || readings[k].custom), apierrors.IsForbidden(err) && optional:
				o.Unread[k] = err
			case r.Namespaces[k] != "":
				return fmt.Errorf("list %s in %s: %w", k, r.Namespaces[k], err)
			default:
				return fmt.Errorf("list %s: %w", k, err)
			}
		}
		return nil
	}
	if err := all(r.Needed, false); err != nil {
		return nil, err
	}
	if r.More != nil {
		if err := all(r.More(o), false); err != nil {
			return nil, err
		}
	}
	return o, all(r.Optional, true)
}

// list adds the objects of a kind, page after page, and returns their version. Later pages have that of
// the first one.
func (r *Request) list(ctx context.Context, client rest.Interface, k Kind, opts metav1.ListOptions, o *Objects) (version string, err error) {
	how := readings[k]
	is := how.is
	path := "/apis/" + is.GroupVersion().String()
	if is.Group == "" {
		path = "/api/" + is.Version
	}
	if in := r.Namespaces[k]; in != "" {
		path += "/namespaces/" + in
	}
	path += "/" + string(k)
	opts.Limit = pageSize
	for {
		l, err := page(ctx, client, path, &opts)
		if err != nil && opts.ResourceVersionMatch != "" && opts.Continue == "" && apierrors.IsTimeout(err) {
			// This resource's etcd has not reached the version.
			opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
			l, err = page(ctx, client, path, &opts)
		}
		if err != nil {
			return "", err
		}
		for _, item := range l.Items {
			if err := o.add(&how, item); err != nil {
				return "", err
			}
		}
		if opts.Continue = l.Metadata.Continue; opts.Continue == "" {
			return l.Metadata.ResourceVersion, nil
		}
		opts.ResourceVersion, opts.ResourceVersionMatch = "", "" // the token contains the version
	}
}

// listed is a list in the form in which an API server returns it.
type listed struct {
	Metadata metav1.ListMeta   `json:"metadata"`
	Items    []json.RawMessage `json:"items"`
}

func page(ctx context.Context, client rest.Interface, path string, opts *metav1.ListOptions) (*listed, error) {
	answer := client.Get().AbsPath(path).SetHeader("Accept", "application/json").
		SpecificallyVersionedParams(opts, scheme.ParameterCodec, schema.GroupVersion{Version: "v1"}).Do(ctx)
	if err := answer.Error(); err != nil {
		return nil, err
	}
	data, err := answer.Raw()
	if err != nil {
		return nil, err
	}
	l := &listed{}
	return l, json.Unmarshal(data, l)
}
