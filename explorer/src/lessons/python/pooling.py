"""Attention pooling: the weights of ten keys for one query, and the prediction."""

import numpy as np

from regard.pooling import NadarayaWatson

keys = np.array([0.3, 0.8, 1.2, 1.7, 2.2, 2.6, 3.1, 3.7, 4.2, 4.7])
values = np.array([1.3, 2.0, 3.4, 3.2, 3.8, 2.8, 2.9, 1.4, 1.8, 1.1])
query = 3.3

for bandwidth in (0.05, 0.4, 10.0):
    model = NadarayaWatson(kernel="gaussian", bandwidth=bandwidth).fit(keys[:, None], values)
    weights = model.weights([[query]])[0]
    prediction = model.predict([[query]])[0]
    print(f"h = {bandwidth:5}: largest weight {weights.max():.3f}, prediction {prediction:.3f}")

print(f"mean of the values: {values.mean():.3f}")
