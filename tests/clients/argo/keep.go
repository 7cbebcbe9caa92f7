package main

import (
	"os"
	"time"

	"github.com/argoproj/gitops-engine/pkg/health"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hanse.test/clients/check"
)

// How long the cache may need until it knows what was written.
const cacheLags = 300 * time.Millisecond

// keep holds the set of a file in a namespace: for each line that it is given it compares what its cache has with what should be,
// and syncs if that differs and only then.
func (w *world) keep(namespace, file string) {
	w.name = namespace
	text, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	check.Rounds(func(t *check.T) check.Round {
		t.Must(w.cluster.EnsureSynced(), "sync the cache")
		objects := w.marked(t, string(text))
		for _, object := range objects {
			object.SetNamespace(namespace)
		}
		var done check.Round
		if w.anyDiffers(t, objects) {
			for _, result := range w.sync(t, objects, sync.WithPrune(true)) {
				done.Written = append(done.Written, result.ResourceKey.String())
			}
			time.Sleep(cacheLags)
		}
		done.Missing = w.unhealthy(t, objects)
		return done
	})
}

// anyDiffers: one is missing, or is not as it should be.
func (w *world) anyDiffers(t *check.T, objects []*unstructured.Unstructured) bool {
	live, err := w.cluster.GetManagedLiveObjs(objects, w.isManaged)
	t.Must(err, "look for live objects")
	for _, object := range objects {
		if live[kube.GetResourceKey(object)] == nil {
			return true
		}
	}
	return len(w.differences(t, objects)) > 0
}

// unhealthy names one that is not healthy by the engine's rules.
func (w *world) unhealthy(t *check.T, objects []*unstructured.Unstructured) string {
	live, err := w.cluster.GetManagedLiveObjs(objects, w.isManaged)
	t.Must(err, "look for live objects")
	for _, object := range objects {
		found := live[kube.GetResourceKey(object)]
		if found == nil {
			return object.GetKind() + " " + object.GetName() + " is missing"
		}
		status, err := health.GetResourceHealth(found, nil)
		t.Must(err, "judge")
		if status != nil && status.Status != health.HealthStatusHealthy {
			return object.GetKind() + " " + object.GetName() + ": " + string(status.Status) + ", " + status.Message
		}
	}
	return ""
}
