"""What is asked: shapes, masks, layouts and the models they come from."""
