// SPDX-License-Identifier: Apache-2.0

package graphclient

import (
	"bytes"
	"fmt"

	"sigs.k8s.io/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// serializers are the JSON ones of a codec factory, but for two things that a watch
// repeats for each object of thousands: the usual ones scan an event twice to find its
// object, and the object twice to find its kind, before they read it.
type serializers struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s serializers) SupportedMediaTypes() []runtime.SerializerInfo {
	var out []runtime.SerializerInfo
	for _, info := range s.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeJSON || info.StreamSerializer == nil {
			continue
		}
		stream := *info.StreamSerializer
		stream.Serializer = events{stream.Serializer}
		info.Serializer, info.StreamSerializer = objects{info.Serializer}, &stream
		out = append(out, info)
	}
	return out
}

// events reads the events of a watch.
type events struct{ runtime.Serializer }

// Decode implements runtime.Decoder. The object of an event is a part of data, and so
// good until the next event only.
func (s events) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if event, ok := into.(*metav1.WatchEvent); ok {
		if kind, object, ok := cutEvent(data); ok {
			event.Type, event.Object.Raw = kind, object
			return event, defaults, nil
		}
	}
	return s.Serializer.Decode(data, defaults, into) // what it wraps is the interface's own
}

// cutEvent finds type and object of an event as the API server writes it: these two
// fields in this order, and no other, which its own tests hold it to. The object may
// still be malformed.
func cutEvent(data []byte) (kind string, object []byte, ok bool) {
	rest, begins := bytes.CutPrefix(data, []byte(`{"type":"`))
	word, rest, cut := bytes.Cut(rest, []byte(`","object":`))
	object, ends := bytes.CutSuffix(bytes.TrimRight(rest, "\n"), []byte("}"))
	if !begins || !cut || !ends || bytes.ContainsAny(word, `"\`) {
		return "", nil, false
	}
	return string(word), object, true
}

// objects reads single objects.
type objects struct{ runtime.Serializer }

// graphPrefix is how the API server begins our objects: it writes fields by name.
var graphPrefix = fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,`, v1alpha1.SchemeGroupVersion, v1alpha1.Kind)

// Decode implements runtime.Decoder.
func (s objects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into == nil && bytes.HasPrefix(data, graphPrefix) {
		kind, t := v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind), &v1alpha1.NodeGPUTopology{}
		if json.UnmarshalCaseSensitivePreserveInts(data, t) == nil && t.GroupVersionKind() == kind {
			return t, &kind, nil
		}
	}
	return s.Serializer.Decode(data, defaults, into) // what it wraps is the interface's own
}
