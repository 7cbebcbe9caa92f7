package main

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runWorkloads writes the statuses that controllers and kubelets would, for waves wait until their objects are healthy.
func (w *world) runWorkloads() context.CancelFunc {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for ctx.Err() == nil {
			w.runOnce(ctx)
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return stop
}

// runOnce leaves what fails, for instance by a conflict, to the next round.
func (w *world) runOnce(ctx context.Context) {
	deployments, err := w.client.AppsV1().Deployments(w.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, deployment := range deployments.Items {
		if deployment.Status.ObservedGeneration == deployment.Generation {
			continue
		}
		replicas := *deployment.Spec.Replicas
		deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Replicas: replicas,
			UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas}
		_, _ = w.client.AppsV1().Deployments(w.name).UpdateStatus(ctx, &deployment, metav1.UpdateOptions{})
	}
	jobs, err := w.client.BatchV1().Jobs(w.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, job := range jobs.Items {
		if job.Status.CompletionTime != nil {
			continue
		}
		now := metav1.Now()
		job.Status = batchv1.JobStatus{Succeeded: 1, StartTime: &now, CompletionTime: &now,
			UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{},
			Conditions: []batchv1.JobCondition{
				{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now},
				{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now}}}
		_, _ = w.client.BatchV1().Jobs(job.Namespace).UpdateStatus(ctx, &job, metav1.UpdateOptions{})
	}
}

func replicaSet(owner *appsv1.Deployment) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: owner.Name + "-1", Labels: owner.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("Deployment"))}},
		Spec: appsv1.ReplicaSetSpec{Selector: owner.Spec.Selector, Template: owner.Spec.Template},
	}
}
