package main

import (
	"fmt"

	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hanse.test/clients/check"
)

const manager = "argocd-controller"

func (w *world) checkDiffs(suite *check.Suite) {
	suite.Run("the three-way diff sees drift and nothing else", func(t *check.T) { w.diff(t) })
	suite.Run("the structured-merge diff sees drift and nothing else", func(t *check.T) {
		w.diff(t, diff.WithStructuredMergeDiff(true), diff.WithGVKParser(w.cluster.GetGVKParser()), diff.WithManager(manager))
	})
	suite.Run("the server-side diff sees drift and nothing else", func(t *check.T) {
		operations, cleanup, err := kube.ManageServerSideDiffDryRuns(w.config, w.cluster.GetOpenAPISchema(), w.kubectl.Tracer, w.kubectl.Log, nil)
		t.Must(err, "make a dry runner")
		defer cleanup()
		w.diff(t, diff.WithServerSideDiff(true), diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(operations)),
			diff.WithGVKParser(w.cluster.GetGVKParser()), diff.WithManager(manager))
	})
}

// differences names the objects whose live state is not what the set wants.
func (w *world) differences(t *check.T, objects []*unstructured.Unstructured, options ...diff.Option) map[string]bool {
	live, err := w.cluster.GetManagedLiveObjs(objects, w.isManaged)
	t.Must(err, "look for live objects")
	pairs := sync.Reconcile(objects, live, w.name, w.cluster)
	different := map[string]bool{}
	for i := range pairs.Target {
		result, err := diff.Diff(pairs.Target[i], pairs.Live[i], append(options, diff.WithLogr(logr.Discard()), diff.IgnoreAggregatedRoles(true))...)
		t.Must(err, "diff")
		if result.Modified {
			named := pairs.Target[i]
			if named == nil {
				named = pairs.Live[i]
			}
			different[named.GetKind()+" "+named.GetName()] = true
		}
	}
	return different
}

// seen waits until the cache shows that something is different, or nothing any more.
func (w *world) seen(t *check.T, objects []*unstructured.Unstructured, different bool) {
	t.Eventually("the cache", func() error {
		if found := w.differences(t, objects); (len(found) > 0) != different {
			return fmt.Errorf("sees %v as different", found)
		}
		return nil
	})
}

// diff demands that what was synced does not differ, and that just what is changed by another does.
func (w *world) diff(t *check.T, options ...diff.Option) {
	objects := w.resources(t)
	ours := func() map[string]bool {
		different := w.differences(t, objects, options...)
		// A hook that stays is marked as well, but is no part of the set.
		delete(different, "ConfigMap done")
		return different
	}
	t.Eventually("the set", func() error {
		if different := ours(); len(different) > 0 {
			return fmt.Errorf("differs in %v", different)
		}
		return nil
	})
	for _, drift := range []struct{ kind, name, patch, back string }{
		{"Deployment", "web", `{"spec":{"replicas":9}}`, `{"spec":{"replicas":2}}`},
		{"ConfigMap", "settings", `{"data":{"course":"south"}}`, `{"data":{"course":"north"}}`},
		{"Boat", "cog", `{"spec":{"harbour":"Visby"}}`, `{"spec":{"harbour":"Lübeck"}}`},
	} {
		object := find(t, objects, drift.kind, drift.name)
		t.Must(w.meddle(t.Context(), object, drift.patch), "meddle")
		t.Eventually("the set with another "+drift.kind, func() error {
			if different := ours(); len(different) != 1 || !different[drift.kind+" "+drift.name] {
				return fmt.Errorf("differs in %v", different)
			}
			return nil
		})
		t.Must(w.meddle(t.Context(), object, drift.back), "put back")
		t.Eventually("the set", func() error {
			if different := ours(); len(different) > 0 {
				return fmt.Errorf("still differs in %v", different)
			}
			return nil
		})
	}
}
